//! Tables of symbols, one line each.

use std::ffi::{CStr, c_void};
use std::fmt;
use std::mem;

/// One line of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Symbol {
    /// Its name.
    pub name: &'static str,
    /// The first version of the interface that has it, as the table counts them.
    pub since: (u32, u32),
    /// Whether the library is refused without it.
    pub required: bool,
    /// Sizes of its arguments in bytes, for tests that compare them with the published headers.
    pub args: &'static [usize],
}

/// What a backend makes of a native call that failed: its own error, which knows the codes of the interface.
pub trait FailedCall: Sized {
    /// What the functions return.
    type Code: Copy + PartialEq;

    /// What they return when all is well.
    const SUCCESS: Self::Code;

    /// Stands for the answer of a function that the library has not. No code of the interface.
    const ABSENT: Self::Code;

    /// The function of that name returned that code.
    fn new(function: &'static str, code: Self::Code) -> Self;
}

/// A table of typed functions, as [`symbols!`](crate::symbols) makes it.
pub trait SymbolTable: Sized {
    /// Its lines, in their order.
    const SYMBOLS: &'static [Symbol];

    /// The functions at the addresses that `address` gives for their names, null for those that are not there.
    ///
    /// # Errors
    /// The first required one that is not there.
    ///
    /// # Safety
    /// N2 of [`native`](crate::native) holds for what `address` finds.
    unsafe fn load(address: &dyn Fn(&CStr) -> *mut c_void) -> Result<Self, Symbol>;

    /// Which of [`Self::SYMBOLS`] are there, in that order.
    fn present(&self) -> Vec<bool>;

    /// Whether the symbol of that name is a line of the table and there.
    fn has(&self, name: &str) -> bool {
        let at = Self::SYMBOLS.iter().position(|symbol| symbol.name == name);
        at.is_some_and(|at| self.present()[at])
    }
}

/// Makes a table of symbols.
///
/// A line has the version of the interface since which there is such a symbol, whether the backend can do without, the
/// symbol's name and its signature (`extern "system"`, which is C's but on 32-bit Windows). The line makes the field of the table,
/// its loading and its entry in [`SYMBOLS`](crate::native::SymbolTable::SYMBOLS), which tests compare with headers and real libraries. A
/// `required` symbol that is missing refuses the library; an `optional` one only what needs it.
///
/// Most interfaces return a code from every function. Then the table names the error, a [`FailedCall`](crate::native::FailedCall), and
/// has an unsafe method for each line, with the symbol's name: its answer is `Ok` or that error, which names the symbol. The
/// example of [`native`](crate::native) is of that form.
///
/// Without an error the functions may return anything, and the fields are called as they are; those of optional lines are
/// `Option`s:
///
/// ```
/// use anyaccel_kit::native::{Missing, NativeLibrary, SymbolTable};
///
/// anyaccel_kit::symbols! {
///     /// What the backend calls of the library of mathematics.
///     pub(crate) struct Math;
///     (1, 0) required cos(f64) -> f64;
///     (2, 0) optional cos_of_tomorrow(f64, u32) -> f64;
/// }
///
/// static MATH: NativeLibrary<Math> = NativeLibrary::new("MY_MATH", &["libm.so.6", "libSystem.B.dylib", "ucrtbase.dll"]);
///
/// # if cfg!(target_os = "linux") {
/// // SAFETY: N1, N2: as the C standard has them.
/// let math = unsafe { MATH.get(|library| library.table()) }?;
/// // SAFETY: any number will do.
/// assert_eq!(unsafe { (math.cos)(0.0) }, 1.0);
/// assert!(math.cos_of_tomorrow.is_none());
/// assert_eq!(math.present(), [true, false]);
/// # }
/// # Ok::<(), Missing>(())
/// ```
#[macro_export]
macro_rules! symbols {
    // A table whose functions return codes.
    (
        $(#[$doc:meta])* $vis:vis struct $table:ident -> Result<(), $failed:ty>;
        $(($major:literal, $minor:literal) $need:ident $name:ident($($arg:ident: $type:ty),* $(,)?);)*
    ) => {
        $crate::symbols! {
            @table $(#[$doc])* [$vis] [pub(self)] $table;
            $(($major, $minor) $need $name($($type),*) -> <$failed as $crate::native::FailedCall>::Code;)*
        }

        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the interface's own names and signatures")]
        impl $table {
            $(
                #[doc = concat!("`", stringify!($name), "`, as the interface documents it.")]
                ///
                /// # Errors
                /// Its code, or the one that says that the library has no such function.
                ///
                /// # Safety
                /// What the interface's documentation asks of its arguments.
                #[inline]
                $vis unsafe fn $name(&self, $($arg: $type),*) -> ::std::result::Result<(), $failed> {
                    use $crate::native::FailedCall as Call;
                    let code = match $crate::symbols!(@function $need self.$name) {
                        // SAFETY: the caller keeps what the interface asks; N2: the signature is the published one.
                        Some(function) => unsafe { function($($arg),*) },
                        None => <$failed as Call>::ABSENT,
                    };
                    if code == <$failed as Call>::SUCCESS {
                        Ok(())
                    } else {
                        Err(<$failed as Call>::new(stringify!($name), code))
                    }
                }
            )*
        }
    };

    // A table whose functions return anything, or nothing.
    (
        $(#[$doc:meta])* $vis:vis struct $table:ident;
        $(($major:literal, $minor:literal) $need:ident $name:ident($($type:ty),* $(,)?) $(-> $result:ty)?;)*
    ) => {
        $crate::symbols! {
            @table $(#[$doc])* [$vis] [$vis] $table;
            $(($major, $minor) $need $name($($type),*) $(-> $result)?;)*
        }
    };

    (
        @table $(#[$doc:meta])* [$vis:vis] [$field:vis] $table:ident;
        $(($major:literal, $minor:literal) $need:ident $name:ident($($type:ty),*) $(-> $result:ty)?;)*
    ) => {
        $(#[$doc])*
        #[allow(non_snake_case, reason = "the interface's own names")]
        #[derive(Clone, Copy)]
        $vis struct $table {
            $($field $name: $crate::symbols!(@field $need unsafe extern "system" fn($($type),*) $(-> $result)?),)*
        }

        impl ::std::fmt::Debug for $table {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                $crate::native::describe(self, stringify!($table), f)
            }
        }

        impl $crate::native::SymbolTable for $table {
            const SYMBOLS: &'static [$crate::native::Symbol] =
                &[$($crate::symbols!(@symbol ($major, $minor) $need $name($($type),*)),)*];

            unsafe fn load(
                address: &dyn Fn(&::std::ffi::CStr) -> *mut ::std::ffi::c_void,
            ) -> ::std::result::Result<Self, $crate::native::Symbol> {
                Ok(Self { $($name: {
                    let found = address(const { $crate::native::c_name(concat!(stringify!($name), "\0")) });
                    // SAFETY: N2, which the caller promises.
                    let function = unsafe { $crate::native::typed(found) };
                    $crate::symbols!(@need $need function, ($major, $minor) $name($($type),*))
                },)* })
            }

            fn present(&self) -> ::std::vec::Vec<bool> {
                ::std::vec![$($crate::symbols!(@function $need self.$name).is_some(),)*]
            }
        }
    };

    (@field required $signature:ty) => { $signature };
    (@field optional $signature:ty) => { ::std::option::Option<$signature> };
    (@function required $field:expr) => { ::std::option::Option::Some($field) };
    (@function optional $field:expr) => { $field };
    (@need required $function:ident, ($major:literal, $minor:literal) $name:ident($($type:ty),*)) => {
        match $function {
            Some(function) => function,
            None => return Err($crate::symbols!(@symbol ($major, $minor) required $name($($type),*))),
        }
    };
    (@need optional $function:ident, $($line:tt)*) => { $function };
    (@symbol ($major:literal, $minor:literal) $need:ident $name:ident($($type:ty),*)) => {
        $crate::native::Symbol {
            name: stringify!($name),
            since: ($major, $minor),
            required: $crate::symbols!(@required $need),
            args: &[$(::std::mem::size_of::<$type>()),*],
        }
    };
    (@required required) => { true };
    (@required optional) => { false };
}

/// Makes types for handles: pointers of a driver's that nobody else follows, so they are numbers here, each kind of its own type.
///
/// ```
/// anyaccel_kit::handles!(VendorStream, VendorEvent);
///
/// let mut event = VendorEvent::NULL;
/// // A driver that is given `&raw mut event` writes the pointer there.
/// event.0 = 0x1000;
/// assert_ne!(event, VendorEvent::NULL);
/// ```
#[macro_export]
macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[allow(missing_docs, reason = "the interface's own name")]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        #[repr(transparent)]
        pub struct $name(pub usize);

        #[allow(missing_docs, reason = "the interface's own name")]
        impl $name {
            pub const NULL: Self = Self(0);
        }
    )*};
}

/// A name with its end as a C string.
///
/// # Panics
/// Without an end, or with one in the middle: while the table is compiled.
pub const fn c_name(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name ends with its only zero"),
    }
}

/// What a table is called and which of its symbols are not there.
///
/// # Errors
/// The formatter's.
pub fn describe<T: SymbolTable>(table: &T, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let lines = T::SYMBOLS.iter().zip(table.present());
    let lacks: Vec<&str> = lines.filter(|(_, present)| !present).map(|(symbol, _)| symbol.name).collect();
    f.debug_struct(name).field("lacks", &lacks).finish_non_exhaustive()
}

/// The function at an address; `None` for null.
///
/// # Safety
/// `F` is the type of a function pointer, and what is there has that type (N2).
pub unsafe fn typed<F: Copy>(address: *mut c_void) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>(), "a function pointer is as large as any other") };
    // SAFETY: sizes are equal; the caller promises the type, and the address is not null.
    (!address.is_null()).then(|| unsafe { mem::transmute_copy(&address) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    struct Failed(&'static str, u8);

    impl FailedCall for Failed {
        type Code = u8;
        const SUCCESS: u8 = 0;
        const ABSENT: u8 = u8::MAX;

        fn new(function: &'static str, code: u8) -> Self {
            Self(function, code)
        }
    }

    crate::symbols! {
        /// Two functions of this test.
        struct Pair -> Result<(), Failed>;
        (1, 0) required answer(code: u8);
        (2, 3) optional also(code: u8, _pad: u64);
    }

    crate::symbols! {
        /// A function that returns nothing, and a wish.
        struct Plain;
        (1, 0) optional bump(&mut u32);
        (1, 0) optional wish() -> usize;
    }

    extern "system" fn answer(code: u8) -> u8 {
        code
    }

    extern "system" fn bump(number: &mut u32) {
        *number += 1;
    }

    /// What a driver that hands out those names would say.
    fn handed_out<'a>(names: &'a [&'a str]) -> impl Fn(&CStr) -> *mut c_void + 'a {
        move |name| match name.to_str().ok().filter(|name| names.contains(name)) {
            Some("answer") => answer as *mut c_void,
            Some("bump") => bump as *mut c_void,
            _ => ptr::null_mut(),
        }
    }

    #[test]
    fn lines_tell_what_the_headers_would() {
        let [first, second] = Pair::SYMBOLS else { panic!("two lines") };
        assert_eq!(*first, Symbol { name: "answer", since: (1, 0), required: true, args: &[1] });
        assert_eq!(*second, Symbol { name: "also", since: (2, 3), required: false, args: &[1, 8] });
    }

    #[test]
    fn a_required_symbol_that_is_missing_refuses_the_table() {
        // SAFETY: N2: nothing is found.
        let refused = unsafe { Pair::load(&handed_out(&[])) };
        assert_eq!(refused.map(drop), Err(Pair::SYMBOLS[0]));
    }

    #[test]
    fn a_call_answers_with_its_code_or_with_that_it_is_absent() {
        // SAFETY: N2: `answer` has that signature.
        let pair = unsafe { Pair::load(&handed_out(&["answer"])) }.expect("what is required is there");
        let said = |answer: Result<(), Failed>| answer.map_err(|Failed(function, code)| (function, code));
        // SAFETY: any number will do.
        unsafe {
            assert_eq!(said(pair.answer(0)), Ok(()));
            assert_eq!(said(pair.answer(7)), Err(("answer", 7)));
            assert_eq!(said(pair.also(0, 0)), Err(("also", u8::MAX)));
        }
        assert_eq!((pair.has("answer"), pair.has("also"), pair.has("neither")), (true, false, false));
        assert_eq!(format!("{pair:?}"), "Pair { lacks: [\"also\"], .. }");
    }

    #[test]
    fn functions_without_codes_are_called_as_they_are() {
        // SAFETY: N2: `bump` has that signature.
        let plain = unsafe { Plain::load(&handed_out(&["bump"])) }.expect("nothing is required");
        let mut number = 1;
        // SAFETY: a reference of its own.
        unsafe { (plain.bump.expect("it is there"))(&mut number) };
        assert_eq!((number, plain.wish.is_none()), (2, true));
    }
}
