//! The functions of `anyaccel.accelerator.random`, and `Generator`.

use crate::device::{Arg, PyDevice, SpecialIndex};
use crate::error::{OrRaise, type_name};
use crate::gate::{self, detach};
use crate::scope::{self, Scope};
use crate::tensor::Tensor;
use anyaccel::random::{Generator, State};
use anyaccel::{Device, DeviceArg, Error, Kind, Runtime};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyOverflowError, PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyDict, PyTuple};
use std::cell::RefCell;

/// The seed of generators that nobody seeded.
const DEFAULT_SEED: u64 = 67_280_421_310_721;

static HOST: PyOnceLock<Generator> = PyOnceLock::new();

/// The default generator of host tensors.
pub(crate) fn host_generator(py: Python<'_>) -> &Generator {
    HOST.get_or_init(py, || {
        let generator = Generator::new();
        // In range, as any 64-bit seed is.
        let _seeded = generator.manual_seed(DEFAULT_SEED);
        generator
    })
}

/// A seed argument: an int, the nearest of 128 bits.
pub(crate) struct Seed(i128);

impl<'a, 'py> FromPyObject<'a, 'py> for Seed {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let refuse = || PyTypeError::new_err(format!("expected an int, not {}", type_name(&object)));
        if object.is_instance_of::<PyBool>() {
            return Err(refuse());
        }
        let integer = (*object).lookup_special_index()?.ok_or_else(refuse)?;
        match integer.extract::<i128>() {
            Ok(seed) => Ok(Self(seed)),
            Err(error) if error.is_instance_of::<PyOverflowError>(object.py()) => {
                Ok(Self(if integer.lt(0)? { i128::MIN } else { i128::MAX }))
            }
            Err(error) => Err(error),
        }
    }
}

/// The bytes of a state argument.
fn state_of(object: &Bound<'_, PyAny>) -> PyResult<State> {
    let py = object.py();
    let bytes = if let Ok(tensor) = object.cast::<Tensor>() {
        tensor.get().state_bytes(py)?
    } else if let Ok(buffer) = PyBuffer::<u8>::get(object) {
        buffer.to_vec(py)?
    } else {
        // A host tensor of PyTorch gives its bytes as an array.
        let array = object.call_method0("numpy").ok();
        let buffer = array.as_ref().and_then(|array| PyBuffer::<u8>::get(array).ok());
        buffer.ok_or_else(|| not_a_state(object))?.to_vec(py)?
    };
    State::from_bytes(&bytes).map_err(Error::Generator).or_raise()
}

fn not_a_state(object: &Bound<'_, PyAny>) -> PyErr {
    PyTypeError::new_err(format!(
        "RNG state must be a anyaccel.ByteTensor: a uint8 Tensor, an array of uint8 or bytes, not {}",
        type_name(object)
    ))
}

fn tensor(py: Python<'_>, state: State) -> PyResult<Tensor> {
    Tensor::of_bytes(py, &state.to_bytes())
}

/// The seed of a device's default generator.
#[pyfunction]
#[pyo3(signature = (device=Arg::CURRENT, /), text_signature = "(device=None, /)")]
pub(crate) fn initial_seed(py: Python<'_>, device: Arg) -> PyResult<u64> {
    detach(py, || Runtime::global().initial_seed(device.0)).or_raise()
}

/// The state of a device's default generator: a uint8 tensor of 16 bytes, seed and offset.
#[pyfunction]
#[pyo3(signature = (device=Arg::CURRENT, /), text_signature = "(device=None, /)")]
pub(crate) fn get_rng_state(py: Python<'_>, device: Arg) -> PyResult<Tensor> {
    tensor(py, detach(py, || Runtime::global().get_rng_state(device.0)).or_raise()?)
}

/// The states of all devices' default generators; `[]` with no device.
#[pyfunction]
pub(crate) fn get_rng_state_all(py: Python<'_>) -> PyResult<Vec<Tensor>> {
    let states = detach(py, || Runtime::global().get_rng_state_all()).or_raise()?;
    states.into_iter().map(|state| tensor(py, state)).collect()
}

/// The offset of a device's default generator.
#[pyfunction]
#[pyo3(signature = (device=Arg::CURRENT, /), text_signature = "(device=None, /)")]
pub(crate) fn get_rng_state_offset(py: Python<'_>, device: Arg) -> PyResult<u64> {
    detach(py, || Runtime::global().get_rng_state_offset(device.0)).or_raise()
}

/// Seeds the default generator of the device that is current on this thread now. Starts nothing.
#[pyfunction]
pub(crate) fn manual_seed(py: Python<'_>, seed: Seed) -> PyResult<()> {
    detach(py, || Runtime::global().manual_seed(seed.0)).or_raise()
}

/// Seeds the default generators of all devices alike. Starts nothing.
#[pyfunction]
pub(crate) fn manual_seed_all(py: Python<'_>, seed: Seed) -> PyResult<()> {
    detach(py, || Runtime::global().manual_seed_all(seed.0)).or_raise()
}

/// Draws a random seed for the default generator of the current device, and returns it. Starts nothing.
#[pyfunction]
pub(crate) fn seed(py: Python<'_>) -> PyResult<u64> {
    detach(py, || Runtime::global().seed()).or_raise()
}

/// Draws one random seed for the default generators of all devices, and returns it. Starts nothing.
#[pyfunction]
pub(crate) fn seed_all(py: Python<'_>) -> PyResult<u64> {
    detach(py, || Runtime::global().seed_all()).or_raise()
}

/// Sets the state of a device's default generator. Starts nothing.
#[pyfunction]
#[pyo3(signature = (new_state, device=Arg::CURRENT), text_signature = "(new_state, device=None)")]
pub(crate) fn set_rng_state(py: Python<'_>, new_state: &Bound<'_, PyAny>, device: Arg) -> PyResult<()> {
    let state = state_of(new_state)?;
    detach(py, || Runtime::global().set_rng_state(state, device.0)).or_raise()
}

/// Sets the states of all devices' default generators; there must be one for each. Starts nothing.
#[pyfunction]
pub(crate) fn set_rng_state_all(py: Python<'_>, new_states: &Bound<'_, PyAny>) -> PyResult<()> {
    let states = new_states.try_iter()?.map(|state| state_of(&state?)).collect::<PyResult<Vec<State>>>()?;
    detach(py, || Runtime::global().set_rng_state_all(&states)).or_raise()
}

/// Sets the offset of a device's default generator and leaves its seed. Starts nothing.
#[pyfunction]
#[pyo3(signature = (offset, device=Arg::CURRENT), text_signature = "(offset, device=None)")]
pub(crate) fn set_rng_state_offset(py: Python<'_>, offset: Seed, device: Arg) -> PyResult<()> {
    detach(py, || Runtime::global().set_rng_state_offset(offset.0, device.0)).or_raise()
}

thread_local! {
    /// What a deferred Python call raised on this thread, until the call that started the runtime reports it.
    static FAILED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// The exception for a deferred Python call that failed, if it was one.
pub(crate) fn deferred_failure() -> Option<PyErr> {
    FAILED.try_with(|failed| failed.borrow_mut().take()).ok().flatten()
}

/// Where the innermost Python frame is.
fn python_place(py: Python<'_>) -> String {
    let place = || -> PyResult<String> {
        let frame = py.import("sys")?.call_method1("_getframe", (0,))?;
        let line: u32 = frame.getattr("f_lineno")?.extract()?;
        let file: String = frame.getattr("f_code")?.getattr("co_filename")?.extract()?;
        Ok(format!("{file}:{line}"))
    };
    place().unwrap_or_else(|_| "an unknown place".to_owned())
}

/// Runs `callable` now if the runtime has started, else once it starts, in program order. Without an accelerator it is
/// dropped. `seed` and `seed_all` are accepted for code that passes them.
#[pyfunction]
#[pyo3(signature = (callable, **kwargs))]
pub(crate) fn _lazy_call(py: Python<'_>, callable: Py<PyAny>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    if !callable.bind(py).is_callable() {
        return Err(PyTypeError::new_err(format!("expected a callable, not {}", type_name(callable.bind(py)))));
    }
    for key in kwargs.into_iter().flat_map(|kwargs| kwargs.keys()) {
        let key: String = key.extract()?;
        if key != "seed" && key != "seed_all" {
            return Err(PyTypeError::new_err(format!("_lazy_call() got an unexpected keyword argument '{key}'")));
        }
    }
    if Runtime::global().is_started() {
        return callable.call0(py).map(drop);
    }
    let place = python_place(py);
    let call = move |_: &Runtime| {
        let raised = gate::with_python(|py| callable.call0(py).err()).flatten();
        let Some(error) = raised else { return Ok(()) };
        let message = error.to_string();
        let _exiting = FAILED.try_with(|failed| {
            let text = format!("A call deferred at {place} failed once the runtime had started: {message}");
            let outer = PyRuntimeError::new_err(text);
            let _closing = gate::with_python(|py| outer.set_cause(py, Some(error)));
            *failed.borrow_mut() = Some(outer);
        });
        Err(Error::Panicked { what: "A deferred call", message })
    };
    detach(py, || Runtime::global().lazy_call(call)).or_raise()
}

/// Context manager that restores the states of the default generators of some devices, of all if none are named.
#[pyclass(module = "anyaccel.random", frozen)]
pub(crate) struct _ForkRng {
    devices: Option<Vec<DeviceArg<'static>>>,
    enabled: bool,
    number: u64,
}

#[pymethods]
impl _ForkRng {
    #[new]
    fn new(devices: Option<Vec<Arg>>, enabled: bool) -> Self {
        let devices = devices.map(|devices| devices.into_iter().map(|device| device.0).collect());
        Self { devices, enabled, number: scope::number() }
    }

    fn __enter__(&self, py: Python<'_>) -> PyResult<()> {
        if !self.enabled {
            return Ok(());
        }
        // Started without the interpreter; the guard itself belongs to this thread.
        detach(py, || Runtime::global().get_rng_state_all().map(drop)).or_raise()?;
        let guard = Runtime::global().fork_rng(self.devices.as_deref()).or_raise()?;
        scope::enter(self.number, Scope::Rng { _guard: guard });
        Ok(())
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) {
        scope::leave(self.number);
    }
}

/// A random number generator of its own, for tensors of any device: pass it as `generator=`.
///
/// >>> import anyaccel
/// >>> g = anyaccel.Generator().manual_seed(7)
/// >>> g.initial_seed()
/// 7
#[pyclass(name = "Generator", module = "anyaccel", frozen, weakref)]
pub(crate) struct PyGenerator {
    pub(crate) generator: Generator,
    device: Device,
}

impl PyGenerator {
    pub(crate) fn of(generator: Generator) -> Self {
        Self { generator, device: Device::new(Kind::CPU, None) }
    }
}

#[pymethods]
impl PyGenerator {
    #[new]
    #[pyo3(signature = (device=Arg::CURRENT), text_signature = "(device=None)")]
    fn new(device: Arg) -> PyResult<Self> {
        let generator = Generator::new();
        generator.manual_seed(DEFAULT_SEED).or_raise()?;
        let device = crate::device::named(device.0)?.unwrap_or(Device::new(Kind::CPU, None));
        Ok(Self { generator, device })
    }

    /// The device that it was made for; it serves all.
    #[getter]
    fn device(&self) -> PyDevice {
        PyDevice(self.device)
    }

    /// Seeds it and returns it.
    fn manual_seed(slf: Py<Self>, seed: Seed) -> PyResult<Py<Self>> {
        slf.get().generator.manual_seed(seed.0).or_raise()?;
        Ok(slf)
    }

    /// Seeds it with random bits, and returns them.
    fn seed(&self) -> u64 {
        self.generator.seed()
    }

    /// The seed.
    fn initial_seed(&self) -> u64 {
        self.generator.initial_seed()
    }

    /// Its state: a uint8 tensor of 16 bytes.
    fn get_state(&self, py: Python<'_>) -> PyResult<Tensor> {
        tensor(py, self.generator.state())
    }

    /// Sets its state.
    fn set_state(&self, new_state: &Bound<'_, PyAny>) -> PyResult<()> {
        self.generator.set_state(state_of(new_state)?);
        Ok(())
    }

    /// How far its sequence was drawn.
    fn get_offset(&self) -> u64 {
        self.generator.offset()
    }

    /// Goes to a place in its sequence: a multiple of 4.
    fn set_offset(&self, offset: Seed) -> PyResult<()> {
        self.generator.set_offset(offset.0).or_raise()
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let (this, py) = (slf.get(), slf.py());
        (slf.get_type(), (PyDevice(this.device),), PyBytes::new(py, &this.generator.state().to_bytes()))
            .into_pyobject(py)
    }

    /// For pickle and copy.
    fn __setstate__(&self, state: &Bound<'_, PyAny>) -> PyResult<()> {
        self.set_state(state)
    }

    fn __repr__(&self) -> String {
        format!("<anyaccel.Generator seed={} offset={}>", self.generator.initial_seed(), self.generator.offset())
    }
}

/// The default generator of host tensors.
#[pyfunction]
pub(crate) fn _host_generator(py: Python<'_>) -> PyGenerator {
    PyGenerator::of(host_generator(py).clone())
}

/// A seed that is in range, as an unsigned number.
#[pyfunction]
pub(crate) fn _checked_seed(seed: Seed) -> PyResult<u64> {
    let generator = Generator::new();
    generator.manual_seed(seed.0).or_raise()?;
    Ok(generator.initial_seed())
}
