//! Tables of C functions, resolved when a library is opened, so that a missing function is an error there instead of a
//! panic at the first call.
//!
//! cudarc supplies types and constants only, not the calls: those return Rust enums (undefined behavior for an unlisted
//! value of a newer library; here results are plain integers), panic at the first use of a missing function, and open
//! libraries under its own list of names (without `libnccl.so.2`), whereas [`libraries`](super::libraries) also searches
//! Python packages and user-specified files.

/// Declares a table of C functions with a `load` function that resolves all of them; `Err` lists the
/// missing names. `as in sys` after a function checks its argument list against cudarc's declaration at
/// compile time, for functions that take no enum as an integer.
#[macro_export]
macro_rules! functions {
    (
        $(#[$meta:meta])*
        $vis:vis struct $table:ident;
        $(fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $answer:ty $(as in $sys:ident)?;)*
    ) => {
        $(#[$meta])*
        #[allow(non_snake_case)]
        $vis struct $table {
            $($vis $name: unsafe extern "C" fn($($arg: $type),*) -> $answer,)*
        }

        $($crate::driver::functions::same_arguments!($($sys)? => $name($($type),*));)*

        impl $table {
            /// Resolves every function; `Err` lists the names missing in the library.
            #[allow(non_snake_case)]
            $vis fn load(
                library: &libloading::Library,
            ) -> std::result::Result<Self, Vec<&'static str>> {
                let mut missing = Vec::new();
                $(
                    // SAFETY: this is the function's type in NVIDIA's headers.
                    let $name = unsafe {
                        $crate::driver::functions::symbol::<
                            unsafe extern "C" fn($($arg: $type),*) -> $answer,
                        >(library, concat!(stringify!($name), "\0"))
                    };
                    if $name.is_none() {
                        missing.push(stringify!($name));
                    }
                )*
                match ($($name,)*) {
                    ($(Some($name),)*) => Ok(Self { $($name,)* }),
                    _ => Err(missing),
                }
            }
        }
    };
}
pub use functions;

/// Fails compilation if an argument list differs from cudarc's declaration.
#[macro_export]
macro_rules! same_arguments {
    (=> $name:ident($($type:ty),*)) => {};
    ($sys:ident => $name:ident($($type:ty),*)) => {
        const _: () = {
            let _: unsafe fn($($type),*) -> _ = $sys::$name;
        };
    };
}
pub use same_arguments;

/// Resolves a symbol; `name` must end with a NUL byte.
///
/// # Safety
///
/// `T` must be the symbol's function pointer type.
pub unsafe fn symbol<T: Copy>(library: &libloading::Library, name: &str) -> Option<T> {
    // SAFETY: the caller guarantees the type.
    unsafe { library.get::<T>(name.as_bytes()) }.ok().map(|symbol| *symbol)
}
