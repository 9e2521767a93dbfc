//! Graphs, as command buffers of what devices can record: copies and fills on the device, writes, kernels.
//!
//! Where memory has no objects, copies and fills are recorded as launches of kernels: 0.9 of the extension has commands for
//! objects only, and those of 1.0 for shared virtual memory take no unified shared memory by their specification.
//!
//! Every launch has a kernel object of its own. By the specification one would do, as recording takes its arguments; but
//! PoCL 3.1 takes them when the command buffer runs (`tests/pocl.rs` shows it).

use crate::command_buffer::{CommandBuffer, SyncPoint};
use crate::device::{OpenClDevice, pieces};
use crate::kernel::Arguments;
use crate::memory::Spot;
use crate::object::{Buffer, KernelObject, Program};
use crate::part::Part;
use anyaccel_hal::{
    Arg, CaptureId, CaptureMode, End, Fault, FaultKind, GraphExec, GraphNode, Graphs, GraphsLimits, Kernel, Launch, Op,
    Pattern, Place, StreamId,
};
use anyaccel_kernels::{Builtin, fill_pattern};
use std::sync::OnceLock;

/// The most bytes that one pattern of a built-in fill holds.
const PATTERN: usize = 16;

/// An executable graph.
pub(crate) struct Graph {
    /// `None` if there is nothing to do.
    commands: Option<CommandBuffer>,
    /// One for each launch, with its arguments: see the module.
    _kernels: Vec<KernelObject>,
    /// Parts of buffers that they name.
    _parts: Vec<Buffer>,
}

/// A kernel that copies, for memory without objects.
const COPY: &str = "
kernel void copy(global uchar *dst, global const uchar *src, ulong len) {
    ulong at = get_global_id(0), step = get_global_size(0), lines = 0;
    if ((((ulong)dst | (ulong)src) & 15) == 0) {
        lines = len / 16;
        for (ulong i = at; i < lines; i += step) ((global uint4 *)dst)[i] = ((global const uint4 *)src)[i];
    }
    for (ulong i = 16 * lines + at; i < len; i += step) dst[i] = src[i];
}
";

/// The program of that kernel, built when first needed.
#[derive(Default)]
pub(crate) struct Copier(OnceLock<Result<Program, Fault>>);

impl Copier {
    fn kernel(&self, part: &Part) -> Result<KernelObject, Fault> {
        let program = self.0.get_or_init(|| {
            let program = Program::from_source(&part.context, &[COPY.as_bytes()])?;
            program.build(part.facts.id.raw, c"").map_err(|fault| Fault { kind: FaultKind::Driver, ..fault })?;
            Ok(program)
        });
        program.as_ref().map_err(Clone::clone)?.kernel("copy")
    }

    /// As many threads as have 16 bytes each to copy, up to what keeps the device busy.
    fn shape(part: &Part, len: u64) -> ([u32; 3], [u32; 3]) {
        let threads = part.facts.max_threads.min(64);
        let busy = 16 * u64::from(part.facts.info.cores.unwrap_or(16));
        let groups = len.div_ceil(16 * u64::from(threads)).clamp(1, busy);
        ([groups as u32, 1, 1], [threads, 1, 1])
    }
}

/// A graph that is being recorded.
struct Recording<'a> {
    device: &'a OpenClDevice,
    commands: CommandBuffer,
    kernels: Vec<KernelObject>,
    parts: Vec<Buffer>,
}

impl OpenClDevice {
    /// Whether command buffers can do all that a graph needs of them.
    pub(crate) fn records(&self) -> bool {
        let facts = &self.part.facts;
        let fills = self.find_builtin(Builtin::FillPattern.number()).is_some();
        facts.command_buffers.is_some() && facts.simultaneous && (facts.by_object() || fills)
    }
}

impl Recording<'_> {
    /// Records one node and returns the point where it has ended.
    ///
    /// # Safety
    /// As for `Graphs::build`.
    unsafe fn node(&mut self, op: &Op, after: &[SyncPoint]) -> Result<SyncPoint, Fault> {
        // SAFETY: as this function's caller promises.
        unsafe {
            match op {
                Op::Copy { dst: End::Device(dst), src: End::Device(src), len } => self.copy(*dst, *src, *len, after),
                Op::Copy { .. } => Err(Fault::unsupported("build").note("a copy from or to the host")),
                Op::Fill { dst, pattern, len } => self.fill(*dst, pattern.bytes(), *len, after),
                Op::Write { dst, bytes } => self.write(*dst, bytes.bytes(), after),
                Op::HostCall(_) => Err(Fault::unsupported("build").note("a function of the host")),
                Op::Launch { kernel, launch, args } => {
                    let args: Vec<Arg<'_>> = args.iter().map(|arg| arg.as_arg()).collect();
                    self.launch(*kernel, *launch, &args, after)
                }
            }
        }
    }

    /// # Safety
    /// H1, H4.
    unsafe fn copy(&mut self, dst: Place, src: Place, len: u64, after: &[SyncPoint]) -> Result<SyncPoint, Fault> {
        let device = self.device;
        // SAFETY: H1, H4.
        unsafe {
            let (to, from) = (device.block(dst.mem)?, device.block(src.mem)?);
            if let (Spot::Object(to, at), Spot::Object(from, start)) = (to.spot(dst.offset), from.spot(src.offset)) {
                return self.commands.copy_objects((to, at), (from, start), len as usize, after);
            }
            let kernel = device.part.copier.kernel(&device.part)?;
            let mut arguments = Arguments::new(&device.part, kernel.raw());
            arguments.memory(to, dst.offset, len)?;
            arguments.memory(from, src.offset, len)?;
            arguments.value(&len.to_ne_bytes())?;
            let (groups, threads) = Copier::shape(&device.part, len);
            self.record(kernel, groups, threads, after)
        }
    }

    /// # Safety
    /// H1, H4, H14.
    unsafe fn fill(&mut self, dst: Place, pattern: &[u8], len: u64, after: &[SyncPoint]) -> Result<SyncPoint, Fault> {
        // SAFETY: H1, H4, H14.
        unsafe {
            if let Spot::Object(to, at) = self.device.block(dst.mem)?.spot(dst.offset) {
                return self.commands.fill_object((to, at), pattern, len as usize, after);
            }
            let pattern =
                fill_pattern::Pattern::new(pattern).map_err(|error| Fault::invalid("build", error.to_string()))?;
            let params = fill_pattern::Params::new(pattern, len).to_bytes();
            self.builtin(Builtin::FillPattern, &[Arg::Place { place: dst, len }, Arg::Bytes(&params)], after)
        }
    }

    /// # Safety
    /// H1, H4.
    unsafe fn write(&mut self, dst: Place, bytes: &[u8], after: &[SyncPoint]) -> Result<SyncPoint, Fault> {
        let mut after = after.to_vec();
        for piece in pieces(dst.offset, bytes.len()) {
            for part in bytes[piece.clone()].chunks(PATTERN).enumerate() {
                let (at, part) = (piece.start + part.0 * PATTERN, part.1);
                // SAFETY: H1, H4: a part of the place, at a multiple of its own length.
                after = vec![unsafe { self.fill(dst.add(at as u64), part, part.len() as u64, &after) }?];
            }
        }
        after.first().copied().ok_or_else(|| Fault::invalid("build", "a write of no bytes"))
    }

    /// # Safety
    /// H1, H4, H15.
    unsafe fn builtin(&mut self, builtin: Builtin, args: &[Arg<'_>], after: &[SyncPoint]) -> Result<SyncPoint, Fault> {
        // SAFETY: as this function's caller promises.
        unsafe { self.launch(Kernel(builtin.number().into()), Launch::linear(1, 1), args, after) }
    }

    /// # Safety
    /// H1, H4, H15.
    unsafe fn launch(
        &mut self,
        kernel: Kernel,
        launch: Launch,
        args: &[Arg<'_>],
        after: &[SyncPoint],
    ) -> Result<SyncPoint, Fault> {
        // SAFETY: as this function's caller promises.
        unsafe {
            match OpenClDevice::as_builtin(kernel) {
                Some(builtin) => {
                    let (own, plan) = self.device.own_builtin(builtin, launch, args)?;
                    self.record(own, [plan.groups, 1, 1], [plan.threads, 1, 1], after)
                }
                None => {
                    let (own, parts) = self.device.own_loaded(kernel, launch, args)?;
                    self.parts.extend(parts);
                    self.record(own, launch.groups, launch.threads, after)
                }
            }
        }
    }

    /// # Safety
    /// H15 for the kernel's arguments, which are set.
    unsafe fn record(
        &mut self,
        kernel: KernelObject,
        groups: [u32; 3],
        threads: [u32; 3],
        after: &[SyncPoint],
    ) -> Result<SyncPoint, Fault> {
        let local = threads.map(|threads| threads as usize);
        let global = std::array::from_fn(|axis| groups[axis] as usize * local[axis]);
        // SAFETY: C3: nobody else has the kernel; H15, as this function's caller promises.
        let point = unsafe { self.commands.kernel(kernel.raw(), global, local, after) }?;
        self.kernels.push(kernel);
        Ok(point)
    }
}

impl Graphs for OpenClDevice {
    fn limits(&self) -> GraphsLimits {
        GraphsLimits { capture: false, list: true, host_calls: false, host_copies: false, update: false, ordered: false }
    }

    unsafe fn begin(&self, _stream: StreamId, _mode: CaptureMode) -> Result<CaptureId, Fault> {
        Err(Fault::unsupported("begin"))
    }

    unsafe fn capture_id(&self, _stream: StreamId) -> Result<Option<CaptureId>, Fault> {
        Ok(None)
    }

    unsafe fn end(&self, _stream: StreamId) -> Result<GraphExec, Fault> {
        Err(Fault::unsupported("end"))
    }

    unsafe fn abort(&self, _stream: StreamId) {}

    unsafe fn build(&self, nodes: Vec<GraphNode>) -> Result<GraphExec, Fault> {
        for (at, node) in nodes.iter().enumerate() {
            if let Some(after) = node.after.iter().find(|&&after| after as usize >= at) {
                return Err(Fault::invalid("build", format!("node {at} after node {after}")));
            }
        }
        let graph = if nodes.is_empty() {
            Graph { commands: None, _kernels: Vec::new(), _parts: Vec::new() }
        } else {
            let queue = self.part.own_queue()?;
            let commands = CommandBuffer::new(&self.part, &queue)?;
            let mut recording = Recording { device: self, commands, kernels: Vec::new(), parts: Vec::new() };
            let mut points: Vec<SyncPoint> = Vec::with_capacity(nodes.len());
            for node in &nodes {
                let after: Vec<SyncPoint> = node.after.iter().map(|&after| points[after as usize]).collect();
                // SAFETY: as this function's caller promises.
                points.push(unsafe { recording.node(&node.op, &after) }?);
            }
            recording.commands.finalize()?;
            Graph { commands: Some(recording.commands), _kernels: recording.kernels, _parts: recording.parts }
        };
        Ok(GraphExec(self.machine.graphs.insert(graph)))
    }

    unsafe fn replay(&self, graph: GraphExec, stream: StreamId) -> Result<(), Fault> {
        // SAFETY: H1: neither is removed while this call runs.
        let (stream, graph) = unsafe { (self.stream(stream)?, self.machine.graphs.get(graph.0)) };
        let graph = graph.ok_or_else(|| Fault::invalid("replay", "an unknown graph"))?;
        let Some(commands) = &graph.commands else { return Ok(()) };
        let _order = stream.enqueue();
        commands.enqueue(&stream.queue)
    }

    unsafe fn update(&self, _graph: GraphExec, _node: u32, _op: Op) -> Result<(), Fault> {
        Err(Fault::unsupported("update"))
    }

    unsafe fn destroy(&self, graph: GraphExec) {
        drop(self.machine.graphs.remove(graph.0));
    }
}

const _: () = assert!(PATTERN <= size_of::<Pattern>());
