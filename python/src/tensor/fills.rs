//! Fills: constants and random numbers.

use super::storage::Storage;
use super::{Tensor, copies, values};
use crate::error::OrRaise;
use crate::gate::detach;
use crate::random::{PyGenerator, host_generator};
use anyaccel::random::{Distribution, Generator, Layout, Options};
use anyaccel::{DType, Error};
use anyaccel_engine::random as engine;
use anyaccel_kernels::fill_pattern::{self, Pattern};
use anyaccel_kernels::random::{self as kernels, Draw, Fill, Source};
use pyo3::exceptions::PyNotImplementedError;
use pyo3::prelude::*;

/// Fills a tensor with one number.
pub(super) fn constant(py: Python<'_>, tensor: &Tensor, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let element = values::element(py, tensor.dtype, value)?;
    pattern(py, tensor, &element)
}

/// Fills a tensor with the bytes of one element.
pub(super) fn pattern(py: Python<'_>, tensor: &Tensor, element: &[u8]) -> PyResult<()> {
    match &*tensor.storage {
        Storage::Meta => Ok(()),
        Storage::Device(buffer) => {
            let stream = copies::current(py, buffer.device())?;
            detach(py, || stream.fill(&buffer.all(), element)).or_raise()
        }
        storage => {
            let pattern = Pattern::new(element).map_err(Error::Random).or_raise()?;
            storage.write(py, |bytes| fill_pattern::fill(bytes, pattern))
        }
    }
}

/// Fills a tensor with a small whole number.
pub(super) fn whole(py: Python<'_>, tensor: &Tensor, number: u8) -> PyResult<()> {
    pattern(py, tensor, &values::converted(tensor.dtype, DType::U8, &[number]))
}

/// Fills a tensor with random numbers, and returns it.
pub(super) fn random<'py>(
    tensor: Bound<'py, Tensor>,
    distribution: Distribution,
    generator: Option<&Bound<'_, PyGenerator>>,
) -> PyResult<Bound<'py, Tensor>> {
    draw(tensor.py(), tensor.get(), distribution, generator.map(|generator| &generator.get().generator))?;
    Ok(tensor)
}

fn draw(py: Python<'_>, tensor: &Tensor, distribution: Distribution, generator: Option<&Generator>) -> PyResult<()> {
    match &*tensor.storage {
        Storage::Meta => Ok(()),
        Storage::Device(buffer) => {
            let stream = copies::current(py, buffer.device())?;
            let options = Options { generator, ..Options::default() };
            detach(py, || stream.random(&buffer.all(), tensor.dtype, distribution, &options)).or_raise()
        }
        storage => {
            let generator = generator.unwrap_or(host_generator(py));
            let count = tensor.count();
            let sample = fill(tensor, distribution, Source::Value { seed: 0, offset: 0 })?;
            let size = tensor.dtype.size() as u64;
            let plan = engine::Plan::new(Layout::Portable, count, sample.per_call(), size)
                .map_err(Error::Generator)
                .or_raise()?;
            // The interpreter keeps other Python threads from drawing between the two.
            let mut drawn = engine::Generator::new();
            drawn.set_state(generator.state());
            let start = drawn.draw(&plan).map_err(Error::Generator).or_raise()?;
            let fill = fill(tensor, distribution, Source::Value { seed: start.seed(), offset: start.offset() })?;
            // The lengths fit, which is all that can be wrong. The generator moves on only if the memory can be written.
            storage.write(py, |bytes| fill.run(0..count, bytes, &[]))?.map_err(Error::Random).or_raise()?;
            generator.set_state(drawn.state());
            Ok(())
        }
    }
}

/// The fill of host memory, with the numbers that a device would draw.
fn fill(tensor: &Tensor, distribution: Distribution, source: Source) -> PyResult<Fill> {
    let (dtype, count) = (tensor.dtype, tensor.count());
    let draw = Draw { source, layout: kernels::Layout::Portable };
    match distribution {
        Distribution::Bits => Fill::bits(dtype, count, draw),
        Distribution::Uniform { from, to } => Fill::uniform(dtype, count, draw, from, to),
        Distribution::Normal { mean, std } => Fill::normal(dtype, count, draw, mean, std),
        Distribution::LogNormal { mean, std } => Fill::log_normal(dtype, count, draw, mean, std),
        Distribution::Exponential { lambda } => Fill::exponential(dtype, count, draw, lambda),
        Distribution::Geometric { p } => Fill::geometric(dtype, count, draw, p),
        Distribution::Bernoulli { p } => Fill::bernoulli(dtype, count, draw, p),
        Distribution::Integers { from, to } => Fill::integers(dtype, count, draw, from, to),
        Distribution::WholeNumbers => Fill::whole_numbers(dtype, count, draw),
        Distribution::Permutation => Fill::permutation(dtype, count, draw),
        _ => return Err(PyNotImplementedError::new_err("this distribution is not there for host tensors")),
    }
    .map_err(Error::Random)
    .or_raise()
}
