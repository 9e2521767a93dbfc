//! `anyaccel.dtype`: element types, one object each.

use anyaccel::DType;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::ffi::CStr;

static ALL: PyOnceLock<Vec<Py<PyDType>>> = PyOnceLock::new();

/// An element type: `anyaccel.float32` and so on. There is one object of each, so `is` compares.
///
/// >>> import anyaccel
/// >>> anyaccel.bfloat16, anyaccel.bfloat16.itemsize
/// (anyaccel.bfloat16, 2)
#[pyclass(name = "dtype", module = "anyaccel", frozen)]
pub(crate) struct PyDType(pub(crate) DType);

#[pymethods]
impl PyDType {
    /// The name, `float32` say.
    #[getter]
    fn name(&self) -> &'static str {
        self.0.name()
    }

    /// Bytes of an element.
    #[getter]
    fn itemsize(&self) -> usize {
        self.0.size()
    }

    /// Whether it is a real floating-point type.
    #[getter]
    fn is_floating_point(&self) -> bool {
        self.0.is_floating_point()
    }

    /// Whether it is a complex type.
    #[getter]
    fn is_complex(&self) -> bool {
        self.0.is_complex()
    }

    /// Whether it is an integer type with a sign, or a float or complex one.
    #[getter]
    fn is_signed(&self) -> bool {
        !matches!(self.0, DType::Bool | DType::U8 | DType::U16 | DType::U32 | DType::U64)
    }

    fn __repr__(&self) -> String {
        format!("anyaccel.{}", self.0.name())
    }

    fn __reduce__(&self) -> String {
        // A global of the package.
        self.0.name().to_owned()
    }
}

/// The object of a type.
pub(crate) fn object(py: Python<'_>, dtype: DType) -> PyResult<Py<PyDType>> {
    let all = ALL.get_or_try_init(py, || {
        DType::ALL.iter().map(|&dtype| Py::new(py, PyDType(dtype))).collect::<PyResult<Vec<_>>>()
    })?;
    let at = DType::ALL.iter().position(|&known| known == dtype).unwrap_or_default();
    Ok(all[at].clone_ref(py))
}

/// How the buffer protocol writes a type; `None` if it has no word for it.
pub(crate) const fn format(dtype: DType) -> Option<&'static CStr> {
    Some(match dtype {
        DType::Bool => c"?",
        DType::U8 => c"B",
        DType::I8 => c"b",
        DType::U16 => c"H",
        DType::I16 => c"h",
        DType::U32 => c"I",
        DType::I32 => c"i",
        DType::U64 => c"Q",
        DType::I64 => c"q",
        DType::F16 => c"e",
        DType::F32 => c"f",
        DType::F64 => c"d",
        DType::C64 => c"Zf",
        DType::C128 => c"Zd",
        _ => return None,
    })
}

/// The type that a format and a size mean, in this machine's byte order.
pub(crate) fn from_format(format: &str, size: usize) -> Option<DType> {
    let native = if cfg!(target_endian = "little") { '<' } else { '>' };
    let code = format.strip_prefix(['@', '=', native]).unwrap_or(format);
    let integer = |signed: [DType; 4]| {
        let at = [1, 2, 4, 8].iter().position(|&bytes| bytes == size)?;
        Some(signed[at])
    };
    let (signed, unsigned) =
        ([DType::I8, DType::I16, DType::I32, DType::I64], [DType::U8, DType::U16, DType::U32, DType::U64]);
    match code {
        "?" => Some(DType::Bool),
        "b" | "h" | "i" | "l" | "q" | "n" => integer(signed),
        "B" | "H" | "I" | "L" | "Q" | "N" | "c" => integer(unsigned),
        "e" => Some(DType::F16),
        "f" => Some(DType::F32),
        "d" => Some(DType::F64),
        "Zf" => Some(DType::C64),
        "Zd" => Some(DType::C128),
        _ => None,
    }
    .filter(|dtype| dtype.size() == size)
}

/// Puts the types and their other names into the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    for &dtype in DType::ALL {
        module.add(dtype.name(), object(module.py(), dtype)?)?;
    }
    for (name, dtype) in [
        ("float", DType::F32),
        ("double", DType::F64),
        ("half", DType::F16),
        ("int", DType::I32),
        ("long", DType::I64),
        ("short", DType::I16),
        ("cfloat", DType::C64),
        ("cdouble", DType::C128),
        ("chalf", DType::C32),
    ] {
        module.add(name, object(module.py(), dtype)?)?;
    }
    Ok(())
}
