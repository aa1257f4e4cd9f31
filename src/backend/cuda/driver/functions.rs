//! Tables of foreign functions: each is looked up once, where a library is opened, so that a missing
//! one is an error there and not a panic at its first call.
//!
//! Answers are plain integers: a library newer than this program may answer codes that it does not know.

use libloading::Library;

/// Declares a table of C functions and `load`, which looks all of them up; `Err` has the names of those
/// that the library lacks. With `as in path::to::sys`, each argument list is checked against the
/// declaration of the same name there when this crate is compiled.
macro_rules! functions {
    (
        $(#[$meta:meta])*
        $vis:vis struct $table:ident;
        $(fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $answer:ty;)*
    ) => {
        $(#[$meta])*
        #[allow(non_snake_case)]
        $vis struct $table {
            $($vis $name: unsafe extern "C" fn($($arg: $type),*) -> $answer,)*
        }

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
                        $crate::backend::cuda::driver::functions::symbol::<
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
pub(crate) use functions;

/// Stops the compilation where an argument list differs from cudarc's declaration of the same function.
macro_rules! same_arguments {
    ($sys:path, $answer:path; $($name:ident($($type:ty),* $(,)?);)*) => {
        const _: () = {
            use $sys as sys;
            $(let _: unsafe fn($($type),*) -> $answer = sys::$name;)*
        };
    };
}
pub(crate) use same_arguments;

/// The symbol of this name (which ends with a zero), or `None`.
///
/// # Safety
///
/// `T` must be the symbol's type: a function pointer.
pub(crate) unsafe fn symbol<T: Copy>(library: &Library, name: &str) -> Option<T> {
    // SAFETY: the caller knows the type.
    unsafe { library.get::<T>(name.as_bytes()) }.ok().map(|symbol| *symbol)
}
