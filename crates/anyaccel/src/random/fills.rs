//! Fills with random numbers, in stream order.

use super::distribution::Distribution;
use super::generator::Generator;
use crate::buffer::BufferSlice;
use crate::error::{Error, Result};
use crate::graph::{BeforeReplay, GraphError, Recording};
use crate::lane::LaneRef;
use crate::port::{LaunchPart, Part, Port};
use crate::stream::Stream;
use crate::typed::{Element, TypedBuffer, TypedSlice};
use crate::work::usable;
use anyaccel_engine::random::{Layout, Plan};
use anyaccel_hal::{DType, Launch};
use anyaccel_kernels::random::{self as kernels, Fill, Source};
use std::sync::Arc;

/// Where the numbers of a fill come from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// The generator; None for the default one of the stream's device.
    pub generator: Option<&'a Generator>,
    /// Which element takes which part of the generator's sequence.
    pub layout: Layout,
}

/// Bytes of a generator's state in device memory: seed and offset, little-endian.
const CELL: u64 = 16;

/// The most bytes that a fill computed on the host takes of it at a time.
const PIECE: u64 = 4 << 20;

impl Stream {
    /// Fills a buffer with random elements of a type. The generator moves on as this returns, whatever the stream does, so
    /// fills of several streams never share a part of its sequence. Captured into a [`Graph`](crate::Graph), each replay
    /// draws what the same fill enqueued then would draw: the generator moves on at the replay. A device that lacks the fill gets the same bits from
    /// the host.
    ///
    /// ```
    /// use anyaccel::DType;
    /// use anyaccel::random::{Distribution, Options};
    /// # let runtime = anyaccel::Runtime::builder().backend("host").build()?;
    /// runtime.manual_seed(0)?;
    /// let (stream, coins) = (runtime.current_stream(())?, runtime.alloc(8)?);
    /// stream.random(&coins.all(), DType::Bool, Distribution::Bernoulli { p: 0.5 }, &Options::default())?;
    /// assert!(coins.to_vec()?.iter().all(|&coin| coin <= 1));
    /// # Ok::<(), anyaccel::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Random`] for arguments that the distribution does not take, or a type that it has no elements of;
    /// [`Error::Length`] if the buffer has no whole number of elements; [`Error::Generator`] for a layout without threads
    /// or a sequence that ends; [`Error::ForeignRuntime`], [`Error::ForeignDevice`]. The generator has not moved then, but it
    /// has if the driver fails.
    pub fn random(
        &self,
        dst: &BufferSlice<'_>,
        dtype: DType,
        distribution: Distribution,
        options: &Options<'_>,
    ) -> Result<()> {
        let call = "Stream.random";
        let port = self.port(call)?;
        dst.buffer().on(self)?;
        let count = dst.len() / dtype.size() as u64;
        let whole = count * dtype.size() as u64;
        if whole != dst.len() {
            return Err(Error::Length { what: "a random fill of whole elements", expected: whole, got: dst.len() });
        }
        // Of one block, to learn what its parts have in common, and whether the arguments are good.
        let sample = match options.layout {
            Layout::Portable => kernels::Layout::Portable,
            Layout::TorchCuda { .. } => kernels::Layout::TorchCuda { blocks: 1 },
        };
        let sample = distribution.fill(dtype, count, sample)?;
        let plan = Plan::new(options.layout, count, sample.per_call(), dtype.size() as u64)?;
        let Some(to) = dst.part()? else { return Ok(()) };
        let generator = match options.generator {
            Some(generator) => generator,
            None => self.runtime.generator(call, self.device_index().into())?,
        };
        if let Some(recording) = self.lane.recording() {
            return self.random_captured(&recording, port, to, distribution, dtype, plan, generator.clone());
        }
        let start = generator.draw(&plan)?;
        let size = dtype.size() as u64;
        for part in plan.parts() {
            let count = part.elements.end - part.elements.start;
            let layout = part.blocks.map_or(kernels::Layout::Portable, |blocks| kernels::Layout::TorchCuda { blocks });
            let source = Source::Value { seed: start.seed(), offset: start.offset() + part.offset };
            let fill = distribution.fill(dtype, count, layout)?.with_source(source);
            let to = Part { offset: to.offset + part.elements.start * size, len: count * size, ..to };
            self.random_part(call, port, to, fill)?;
        }
        Ok(())
    }

    /// The fill inside a capture: the generator moves on at each replay, which writes where it then is into a cell.
    #[cold]
    #[expect(clippy::too_many_arguments, reason = "a fill and where it goes")]
    fn random_captured(
        &self,
        recording: &Recording,
        port: &Arc<Port>,
        to: Part<'_>,
        distribution: Distribution,
        dtype: DType,
        plan: Plan,
        generator: Generator,
    ) -> Result<()> {
        let call = "Stream.random";
        // Not of the capture's pool: see the module of cells.
        let outside = port.lanes.transfer(port)?;
        if !self.draws(call, port, &outside, dtype, distribution)? {
            return Err(lacking(port));
        }
        let Some(block) = port.alloc(&outside, CELL)? else { return Ok(()) };
        let cell = block.part(0..CELL)?;
        let size = dtype.size() as u64;
        for part in plan.parts() {
            let count = part.elements.end - part.elements.start;
            let layout = part.blocks.map_or(kernels::Layout::Portable, |blocks| kernels::Layout::TorchCuda { blocks });
            let fill = distribution.fill(dtype, count, layout)?.with_source(Source::Cell { delta: part.offset });
            let to = Part { offset: to.offset + part.elements.start * size, len: count * size, ..to };
            let Some(kernel) = usable(port, fill.kernel(), &[to]).filter(|_| port.info().dtypes.contains(dtype)) else {
                return Err(lacking(port));
            };
            let params = fill.params().to_bytes();
            let args = [LaunchPart::Part(to), LaunchPart::Part(cell), LaunchPart::Bytes(&params)];
            // SAFETY: H15: the arguments are those of the built-in's documented layout; the cell is as long as it says.
            unsafe { port.launch(call, &self.lane, kernel, Launch::linear(fill.split().chunks(), 1), &args)? };
        }
        recording.before_replay(BeforeReplay::new(&cell, move |bytes| {
            let start = generator.draw(&plan)?;
            bytes[..8].copy_from_slice(&start.seed().to_le_bytes());
            bytes[8..].copy_from_slice(&start.offset().to_le_bytes());
            Ok(())
        }))
    }

    /// Whether the device's kernel makes elements of that type: not so for float64 where there is no double precision, which
    /// shows at a launch. A recorded one would be too late to refuse the fill.
    fn draws(
        &self,
        call: &'static str,
        port: &Arc<Port>,
        outside: &LaneRef,
        dtype: DType,
        distribution: Distribution,
    ) -> Result<bool> {
        if dtype != DType::F64 {
            return Ok(true);
        }
        let fill = distribution.fill(dtype, 1, kernels::Layout::Portable)?;
        let Some(block) = port.alloc(outside, fill.destination_len())? else { return Ok(true) };
        let Some(kernel) = port.builtin(fill.kernel().number()) else { return Ok(false) };
        let to = block.part(0..fill.destination_len())?;
        let params = fill.params().to_bytes();
        let args = [LaunchPart::Part(to), LaunchPart::Part(to), LaunchPart::Bytes(&params)];
        // SAFETY: H15: as in `random_part`.
        match unsafe { port.launch(call, outside, kernel, Launch::linear(fill.split().chunks(), 1), &args) } {
            Ok(()) => Ok(true),
            Err(Error::Unsupported { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// One launch of a fill, or what stands for it.
    fn random_part(&self, call: &'static str, port: &Arc<Port>, to: Part<'_>, fill: Fill) -> Result<()> {
        if let Some(kernel) = usable(port, fill.kernel(), &[to])
            && port.info().dtypes.contains(fill.dtype())
        {
            let launch = Launch::linear(fill.split().chunks(), 1);
            let params = fill.params().to_bytes();
            // Seed and offset are among the parameters: the cell may be any place.
            let args = [LaunchPart::Part(to), LaunchPart::Part(to), LaunchPart::Bytes(&params)];
            // SAFETY: H15: the arguments are those of the built-in's documented layout; its cell is not read.
            match unsafe { port.launch(call, &self.lane, kernel, launch, &args) } {
                // It has the kernel, but not for these elements: float64 where there is no double precision.
                Err(Error::Unsupported { .. }) => {}
                done => return done,
            }
        }
        self.random_from_host(call, port, to, fill)
    }

    /// Computed by host functions in stream order, piece by piece in one block of host memory.
    fn random_from_host(&self, call: &'static str, port: &Arc<Port>, dst: Part<'_>, fill: Fill) -> Result<()> {
        let size = fill.dtype().size() as u64;
        let piece = PIECE.min(dst.len);
        let block = port.alloc_host(piece as usize)?;
        for start in (0..dst.len).step_by(piece as usize) {
            let len = piece.min(dst.len - start);
            let elements = start / size..(start + len) / size;
            let to = Arc::clone(&block);
            self.host_call_once(call, port, move || {
                // SAFETY: H6: the copy of the piece before has ended and that of this one has not begun, so this function
                // has the block to itself; it lives while it is held.
                let bytes = unsafe { to.bytes_in_turn() };
                // The lengths are those of the elements, which is all that can be wrong.
                let _fits = fill.run(elements, &mut bytes[..len as usize], &[]);
            })?;
            port.upload(&self.lane, Part { offset: dst.offset + start, len, ..dst }, &block, 0)?;
        }
        Ok(())
    }
}

/// What can't be captured, since the host would have to do it.
fn lacking(port: &Port) -> Error {
    GraphError::NotCapturable { what: "Stream.random without a kernel for it", device: port.device }.into()
}

impl<T: Element> TypedSlice<'_, T> {
    /// Fills it with random elements: see [`Stream::random`].
    ///
    /// # Errors
    /// As there.
    pub fn random(&self, stream: &Stream, distribution: Distribution, options: &Options<'_>) -> Result<()> {
        stream.random(&self.bytes(), T::DTYPE, distribution, options)
    }
}

impl<T: Element> TypedBuffer<T> {
    /// Fills it with random elements: see [`Stream::random`].
    ///
    /// # Errors
    /// As there.
    pub fn random(&self, stream: &Stream, distribution: Distribution, options: &Options<'_>) -> Result<()> {
        self.all().random(stream, distribution, options)
    }
}
