//! The little of NVRTC that compiles a program to PTX.
//!
//! Rule that the `unsafe` blocks cite:
//! - **N1** NVRTC's documentation: its functions take a program that was created and not destroyed, strings that end with a
//!   zero, and pointers to as many bytes as it said before.

use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::null;

type Program = *mut c_void;

/// The library.
pub(crate) struct Nvrtc {
    library: Library,
}

/// Destroys its program.
struct Compilation<'a> {
    nvrtc: &'a Nvrtc,
    program: Program,
}

impl Nvrtc {
    /// Loads the library.
    pub(crate) fn load(path: &Path) -> Result<Nvrtc, String> {
        // SAFETY: N1, its initialisers need nothing.
        let library = unsafe { Library::new(path) }.map_err(|error| error.to_string())?;
        Ok(Nvrtc { library })
    }

    fn symbol<F: Copy>(&self, name: &str) -> Result<F, String> {
        // SAFETY: N1, the callers name the types that are documented.
        let symbol = unsafe { self.library.get::<F>(name.as_bytes()) };
        symbol.map(|symbol| *symbol).map_err(|error| error.to_string())
    }

    /// Compiles a source to PTX. A warning is an error, too.
    pub(crate) fn compile(&self, name: &str, source: &str, options: &[&str]) -> Result<String, String> {
        type Create = unsafe extern "C" fn(
            *mut Program,
            *const c_char,
            *const c_char,
            c_int,
            *const *const c_char,
            *const *const c_char,
        ) -> c_int;
        type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
        let create: Create = self.symbol("nvrtcCreateProgram")?;
        let compile: Compile = self.symbol("nvrtcCompileProgram")?;
        let text = |text: &str| CString::new(text).map_err(|error| error.to_string());
        let (source, file) = (text(source)?, text(&format!("{name}.cu"))?);
        let options = options.iter().map(|option| text(option)).collect::<Result<Vec<_>, _>>()?;
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();

        let mut program = std::ptr::null_mut();
        // SAFETY: N1.
        let status = unsafe { create(&mut program, source.as_ptr(), file.as_ptr(), 0, null(), null()) };
        if status != 0 {
            return Err(format!("nvrtcCreateProgram: status {status}"));
        }
        let compilation = Compilation { nvrtc: self, program };
        // SAFETY: N1.
        let status = unsafe { compile(program, options.len() as c_int, options.as_ptr()) };
        let log = compilation.output("nvrtcGetProgramLogSize", "nvrtcGetProgramLog")?;
        if status != 0 || !log.trim().is_empty() {
            return Err(format!("{name}: status {status}\n{}", log.trim_end()));
        }
        compilation.output("nvrtcGetPTXSize", "nvrtcGetPTX")
    }
}

impl Compilation<'_> {
    /// A text of the program, by the names of the functions that tell its size and give it.
    fn output(&self, size: &str, get: &str) -> Result<String, String> {
        let size_of: unsafe extern "C" fn(Program, *mut usize) -> c_int = self.nvrtc.symbol(size)?;
        let get_text: unsafe extern "C" fn(Program, *mut c_char) -> c_int = self.nvrtc.symbol(get)?;
        let mut len = 0;
        // SAFETY: N1.
        let status = unsafe { size_of(self.program, &mut len) };
        if status != 0 {
            return Err(format!("{size}: status {status}"));
        }
        let mut bytes = vec![0_u8; len.max(1)];
        // SAFETY: N1.
        let status = unsafe { get_text(self.program, bytes.as_mut_ptr().cast()) };
        if status != 0 {
            return Err(format!("{get}: status {status}"));
        }
        let text = CStr::from_bytes_until_nul(&bytes).map_err(|error| format!("{get}: {error}"))?;
        text.to_str().map(str::to_owned).map_err(|error| format!("{get}: {error}"))
    }
}

impl Drop for Compilation<'_> {
    fn drop(&mut self) {
        let destroy = self.nvrtc.symbol::<unsafe extern "C" fn(*mut Program) -> c_int>("nvrtcDestroyProgram");
        if let Ok(destroy) = destroy {
            // SAFETY: N1.
            unsafe { destroy(&mut self.program) };
        }
    }
}
