//! Tables of foreign functions: each is looked up once, where a library is opened, so that a missing
//! one is an error there and not a panic at its first call.
//!
//! Answers are plain integers: a library newer than this program may answer codes that it does not know.
//! That is why cudarc gives types and constants here, and not the calls. Its calls answer Rust enumerations, of
//! which a value that is not listed is undefined behaviour; each looks its function up at its first call,
//! and panics where it is missing; and they open libraries by names of cudarc's own choice, where
//! [`super::libraries`] also looks into Python packages and what the user names. (NCCL's version 2 name,
//! `libnccl.so.2`, cudarc does not try at all.)

use libloading::Library;

/// Declares a table of C functions and `load`, which looks all of them up; `Err` has the names of those
/// that the library lacks. Where `as in sys` stands behind a function, its argument list is checked against
/// cudarc's declaration of the same name when this crate is compiled: of functions to which no enumeration is
/// passed as an integer.
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
            /// Looks up every function; `Err` has the names of those that the library lacks.
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

/// Stops the compilation where an argument list differs from cudarc's declaration of the same function.
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

/// The symbol of this name (which ends with a zero), or `None`.
///
/// # Safety
///
/// `T` must be the symbol's type: a function pointer.
pub unsafe fn symbol<T: Copy>(library: &Library, name: &str) -> Option<T> {
    // SAFETY: the caller knows the type.
    unsafe { library.get::<T>(name.as_bytes()) }.ok().map(|symbol| *symbol)
}
