//! A good backend with one defect: every call goes through, unless the defect has its own idea of it.

use anyaccel_cts::{Options, Subject, run, subjects};
use anyaccel_hal::{
    Absence, Arg, CaptureId, CaptureMode, Check, Device, DeviceInfo, Driver, End, Fault, Gate, Gates, GatesLimits,
    GraphExec, GraphNode, Graphs, GraphsLimits, HostFn, HostPtr, Kernel, Kernels, Kind, Launch, Mark, Mem, MemoryInfo,
    Op, Pattern, Peers, PeersLimits, Pinned, PinnedLimits, Place, Probe, Range, Segment, Stamp, StreamId, Telemetry,
    Until, VirtualMemory, VirtualMemoryLimits, WaitMode, Waited,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One defect. What it does not override goes to the good device.
///
/// All methods have the contract of the hal's methods with these names, which their callers and the good device keep; so
/// forwarding is sound. A defect breaks rules of the backend, never in a way that makes the suite itself unsound on the
/// cases that it is run on.
#[allow(clippy::missing_safety_doc, reason = "the contract of each is that of the hal's method of that name")]
pub(crate) trait Defect: Default + Send + Sync + 'static {
    /// Nothing is given back: waits of this defect may end before the work, and whoever trusts them frees what it uses.
    const LEAKS: bool = false;

    fn probe(&self, good: &dyn Driver) -> Probe {
        good.probe()
    }
    fn describe(&self, good: &dyn Driver, ordinal: u32) -> Option<DeviceInfo> {
        good.describe(ordinal)
    }
    fn open(&self, good: &dyn Driver, ordinal: u32) -> Result<Arc<dyn Device>, Fault> {
        good.open(ordinal)
    }
    fn alloc(&self, good: &dyn Device, len: u64) -> Result<Segment, Fault> {
        good.alloc(len)
    }
    unsafe fn free(&self, good: &dyn Device, mem: Mem) -> Result<(), Fault> {
        // SAFETY: forwarded.
        unsafe { good.free(mem) }
    }
    unsafe fn mark(&self, good: &dyn Device, stream: StreamId) -> Result<Mark, Fault> {
        // SAFETY: forwarded.
        unsafe { good.mark(stream) }
    }
    unsafe fn wait(&self, good: &dyn Device, stream: StreamId, of: StreamId, mark: Mark) -> Result<(), Fault> {
        // SAFETY: forwarded.
        unsafe { good.wait(stream, of, mark) }
    }
    unsafe fn wait_host(
        &self,
        good: &dyn Device,
        stream: StreamId,
        until: Until,
        deadline: Option<Instant>,
        mode: WaitMode,
    ) -> Result<Waited, Fault> {
        // SAFETY: forwarded.
        unsafe { good.wait_host(stream, until, deadline, mode) }
    }
    unsafe fn completed(&self, good: &dyn Device, stream: StreamId) -> Result<u64, Fault> {
        // SAFETY: forwarded.
        unsafe { good.completed(stream) }
    }
    unsafe fn stamp(&self, good: &dyn Device, stream: StreamId) -> Result<Stamp, Fault> {
        // SAFETY: forwarded.
        unsafe { good.stamp(stream) }
    }
    unsafe fn elapsed_ns(&self, good: &dyn Device, from: Stamp, to: Stamp) -> Result<i64, Fault> {
        // SAFETY: forwarded.
        unsafe { good.elapsed_ns(from, to) }
    }
    unsafe fn drop_stamp(&self, good: &dyn Device, stamp: Stamp) {
        // SAFETY: forwarded.
        unsafe { good.drop_stamp(stamp) }
    }
    unsafe fn copy(&self, good: &dyn Device, stream: StreamId, dst: End, src: End, len: u64) -> Result<(), Fault> {
        // SAFETY: forwarded.
        unsafe { good.copy(stream, dst, src, len) }
    }
    unsafe fn fill(&self, good: &dyn Device, stream: StreamId, dst: Place, it: Pattern, len: u64) -> Result<(), Fault> {
        // SAFETY: forwarded.
        unsafe { good.fill(stream, dst, it, len) }
    }
    unsafe fn write(&self, good: &dyn Device, stream: StreamId, dst: Place, bytes: &[u8]) -> Result<(), Fault> {
        // SAFETY: forwarded.
        unsafe { good.write(stream, dst, bytes) }
    }
    unsafe fn host_call(&self, good: &dyn Device, stream: StreamId, function: HostFn) -> Result<(), Fault> {
        // SAFETY: forwarded.
        unsafe { good.host_call(stream, function) }
    }
    fn builtin(&self, good: &dyn Device, number: u32) -> Option<Kernel> {
        good.builtin(number)
    }
    unsafe fn launch(
        &self,
        good: &dyn Device,
        stream: StreamId,
        kernel: Kernel,
        launch: Launch,
        args: &[Arg<'_>],
    ) -> Result<(), Fault> {
        // SAFETY: forwarded.
        unsafe { good.launch(stream, kernel, launch, args) }
    }
    fn create_stream(&self, good: &dyn Device, priority: i32) -> Result<StreamId, Fault> {
        good.create_stream(priority)
    }
    unsafe fn build(&self, good: &dyn Graphs, nodes: Vec<GraphNode>) -> Result<GraphExec, Fault> {
        // SAFETY: forwarded.
        unsafe { good.build(nodes) }
    }
    unsafe fn replay(&self, good: &dyn Graphs, graph: GraphExec, stream: StreamId) -> Result<(), Fault> {
        // SAFETY: forwarded.
        unsafe { good.replay(graph, stream) }
    }
    unsafe fn update(&self, good: &dyn Graphs, graph: GraphExec, node: u32, op: Op) -> Result<(), Fault> {
        // SAFETY: forwarded.
        unsafe { good.update(graph, node, op) }
    }
    fn has_telemetry(&self) -> bool {
        true
    }
    fn pinned_alloc(&self, good: &dyn Pinned, len: u64) -> Result<(Mem, HostPtr), Fault> {
        good.alloc(len)
    }
    unsafe fn peer_copy(
        &self,
        (good, peers): (&dyn Device, &dyn Peers),
        stream: StreamId,
        dst: Place,
        (from, src): (u32, Place),
        len: u64,
    ) -> Result<(), Fault> {
        let _unused = good;
        // SAFETY: forwarded.
        unsafe { peers.copy(stream, dst, from, src, len) }
    }
    unsafe fn map(&self, good: &dyn VirtualMemory, range: Range, offset: u64, len: u64) -> Result<(), Fault> {
        // SAFETY: forwarded.
        unsafe { good.map(range, offset, len) }
    }
    unsafe fn gate_wait(&self, good: &dyn Gates, stream: StreamId, gate: Gate) -> Result<(), Fault> {
        // SAFETY: forwarded.
        unsafe { good.wait(stream, gate) }
    }
    unsafe fn gate_destroy(&self, good: &dyn Gates, gate: Gate) {
        // SAFETY: forwarded.
        unsafe { good.destroy(gate) }
    }
    /// The device goes.
    fn gone(&self, _good: &dyn Device) {}
}

/// No defect at all.
#[derive(Default)]
pub(crate) struct Sound;

impl Defect for Sound {}

/// Locks; a defect's own state has no invariant that a panic could break.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct MutantDriver<D> {
    good: Arc<dyn Driver>,
    defect: Arc<D>,
}

struct Mutant<D: Defect> {
    good: Arc<dyn Device>,
    defect: Arc<D>,
}

impl<D: Defect> Drop for Mutant<D> {
    fn drop(&mut self) {
        self.defect.gone(&*self.good);
    }
}

impl<D: Defect> Driver for MutantDriver<D> {
    fn kind(&self) -> Kind {
        self.good.kind()
    }
    fn fork_safe_probe(&self) -> bool {
        self.good.fork_safe_probe()
    }
    fn probe(&self) -> Probe {
        self.defect.probe(&*self.good)
    }
    fn describe(&self, ordinal: u32) -> Option<DeviceInfo> {
        self.defect.describe(&*self.good, ordinal)
    }
    fn start(&self) -> Result<u32, Fault> {
        self.good.start()
    }
    fn open(&self, ordinal: u32) -> Result<Arc<dyn Device>, Fault> {
        let good = self.defect.open(&*self.good, ordinal)?;
        Ok(Arc::new(Mutant { good, defect: self.defect.clone() }))
    }
    fn restartable(&self) -> bool {
        self.good.restartable()
    }
    fn checks(&self) -> Vec<Check> {
        self.good.checks()
    }
}

// SAFETY: every method forwards to a device that keeps the rules, or breaks one on purpose (see Defect).
unsafe impl<D: Defect> Device for Mutant<D> {
    fn info(&self) -> &DeviceInfo {
        self.good.info()
    }
    fn memory_info(&self) -> Result<MemoryInfo, Fault> {
        self.good.memory_info()
    }
    fn alloc(&self, len: u64) -> Result<Segment, Fault> {
        self.defect.alloc(&*self.good, len)
    }
    unsafe fn free(&self, mem: Mem) -> Result<(), Fault> {
        if D::LEAKS {
            return Ok(());
        }
        // SAFETY: forwarded.
        unsafe { self.defect.free(&*self.good, mem) }
    }
    unsafe fn import(&self, native: u64, len: u64) -> Result<Segment, Fault> {
        // SAFETY: forwarded.
        unsafe { self.good.import(native, len) }
    }
    unsafe fn native_mem(&self, mem: Mem) -> u64 {
        // SAFETY: forwarded.
        unsafe { self.good.native_mem(mem) }
    }
    fn create_stream(&self, priority: i32) -> Result<StreamId, Fault> {
        self.defect.create_stream(&*self.good, priority)
    }
    unsafe fn destroy_stream(&self, stream: StreamId) -> Result<(), Fault> {
        if D::LEAKS {
            return Ok(());
        }
        // SAFETY: forwarded.
        unsafe { self.good.destroy_stream(stream) }
    }
    unsafe fn native_stream(&self, stream: StreamId) -> u64 {
        // SAFETY: forwarded.
        unsafe { self.good.native_stream(stream) }
    }
    unsafe fn mark(&self, stream: StreamId) -> Result<Mark, Fault> {
        // SAFETY: forwarded.
        unsafe { self.defect.mark(&*self.good, stream) }
    }
    unsafe fn wait(&self, stream: StreamId, of: StreamId, mark: Mark) -> Result<(), Fault> {
        // SAFETY: forwarded.
        unsafe { self.defect.wait(&*self.good, stream, of, mark) }
    }
    unsafe fn wait_host(
        &self,
        stream: StreamId,
        until: Until,
        deadline: Option<Instant>,
        mode: WaitMode,
    ) -> Result<Waited, Fault> {
        // SAFETY: forwarded.
        unsafe { self.defect.wait_host(&*self.good, stream, until, deadline, mode) }
    }
    unsafe fn completed(&self, stream: StreamId) -> Result<u64, Fault> {
        // SAFETY: forwarded.
        unsafe { self.defect.completed(&*self.good, stream) }
    }
    unsafe fn stamp(&self, stream: StreamId) -> Result<Stamp, Fault> {
        // SAFETY: forwarded.
        unsafe { self.defect.stamp(&*self.good, stream) }
    }
    unsafe fn elapsed_ns(&self, from: Stamp, to: Stamp) -> Result<i64, Fault> {
        // SAFETY: forwarded.
        unsafe { self.defect.elapsed_ns(&*self.good, from, to) }
    }
    unsafe fn drop_stamp(&self, stamp: Stamp) {
        // SAFETY: forwarded.
        unsafe { self.defect.drop_stamp(&*self.good, stamp) }
    }
    unsafe fn copy(&self, stream: StreamId, dst: End, src: End, len: u64) -> Result<(), Fault> {
        // SAFETY: forwarded.
        unsafe { self.defect.copy(&*self.good, stream, dst, src, len) }
    }
    unsafe fn fill(&self, stream: StreamId, dst: Place, pattern: Pattern, len: u64) -> Result<(), Fault> {
        // SAFETY: forwarded.
        unsafe { self.defect.fill(&*self.good, stream, dst, pattern, len) }
    }
    unsafe fn write(&self, stream: StreamId, dst: Place, bytes: &[u8]) -> Result<(), Fault> {
        // SAFETY: forwarded.
        unsafe { self.defect.write(&*self.good, stream, dst, bytes) }
    }
    unsafe fn host_call(&self, stream: StreamId, function: HostFn) -> Result<(), Fault> {
        // SAFETY: forwarded.
        unsafe { self.defect.host_call(&*self.good, stream, function) }
    }
    fn builtin(&self, number: u32) -> Option<Kernel> {
        self.defect.builtin(&*self.good, number)
    }
    unsafe fn launch(&self, stream: StreamId, kernel: Kernel, launch: Launch, args: &[Arg<'_>]) -> Result<(), Fault> {
        // SAFETY: forwarded.
        unsafe { self.defect.launch(&*self.good, stream, kernel, launch, args) }
    }
    fn pinned(&self) -> Option<&dyn Pinned> {
        self.good.pinned().map(|_| self as &dyn Pinned)
    }
    fn peers(&self) -> Option<&dyn Peers> {
        self.good.peers().map(|_| self as &dyn Peers)
    }
    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        self.good.virtual_memory().map(|_| self as &dyn VirtualMemory)
    }
    fn graphs(&self) -> Option<&dyn Graphs> {
        self.good.graphs().map(|_| self as &dyn Graphs)
    }
    fn kernels(&self) -> Option<&dyn Kernels> {
        self.good.kernels()
    }
    fn gates(&self) -> Option<&dyn Gates> {
        self.good.gates().map(|_| self as &dyn Gates)
    }
    fn telemetry(&self) -> Option<&dyn Telemetry> {
        self.good.telemetry().filter(|_| self.defect.has_telemetry())
    }
}

impl<D: Defect> Mutant<D> {
    fn good_pinned(&self) -> &dyn Pinned {
        self.good.pinned().expect("asked for before")
    }
    fn good_peers(&self) -> &dyn Peers {
        self.good.peers().expect("asked for before")
    }
    fn good_virtual(&self) -> &dyn VirtualMemory {
        self.good.virtual_memory().expect("asked for before")
    }
    fn good_gates(&self) -> &dyn Gates {
        self.good.gates().expect("asked for before")
    }
    fn good_graphs(&self) -> &dyn Graphs {
        self.good.graphs().expect("asked for before")
    }
}

impl<D: Defect> Pinned for Mutant<D> {
    fn limits(&self) -> PinnedLimits {
        self.good_pinned().limits()
    }
    fn alloc(&self, len: u64) -> Result<(Mem, HostPtr), Fault> {
        self.defect.pinned_alloc(self.good_pinned(), len)
    }
    unsafe fn register(&self, ptr: HostPtr, len: u64) -> Result<Mem, Fault> {
        // SAFETY: forwarded.
        unsafe { self.good_pinned().register(ptr, len) }
    }
    unsafe fn free(&self, mem: Mem) -> Result<(), Fault> {
        if D::LEAKS {
            return Ok(());
        }
        // SAFETY: forwarded.
        unsafe { self.good_pinned().free(mem) }
    }
}

impl<D: Defect> Peers for Mutant<D> {
    fn limits(&self) -> PeersLimits {
        self.good_peers().limits()
    }
    fn can_access(&self, ordinal: u32) -> bool {
        self.good_peers().can_access(ordinal)
    }
    unsafe fn copy(&self, stream: StreamId, dst: Place, from: u32, src: Place, len: u64) -> Result<(), Fault> {
        // SAFETY: forwarded.
        unsafe { self.defect.peer_copy((&*self.good, self.good_peers()), stream, dst, (from, src), len) }
    }
}

impl<D: Defect> VirtualMemory for Mutant<D> {
    fn limits(&self) -> VirtualMemoryLimits {
        self.good_virtual().limits()
    }
    fn reserve(&self, len: u64) -> Result<(Range, Segment), Fault> {
        self.good_virtual().reserve(len)
    }
    unsafe fn map(&self, range: Range, offset: u64, len: u64) -> Result<(), Fault> {
        // SAFETY: forwarded.
        unsafe { self.defect.map(self.good_virtual(), range, offset, len) }
    }
    unsafe fn unmap(&self, range: Range, offset: u64, len: u64) -> Result<(), Fault> {
        // SAFETY: forwarded.
        unsafe { self.good_virtual().unmap(range, offset, len) }
    }
    unsafe fn release(&self, range: Range) -> Result<(), Fault> {
        // SAFETY: forwarded.
        unsafe { self.good_virtual().release(range) }
    }
}

impl<D: Defect> Gates for Mutant<D> {
    fn limits(&self) -> GatesLimits {
        self.good_gates().limits()
    }
    fn create(&self) -> Result<Gate, Fault> {
        self.good_gates().create()
    }
    unsafe fn wait(&self, stream: StreamId, gate: Gate) -> Result<(), Fault> {
        // SAFETY: forwarded.
        unsafe { self.defect.gate_wait(self.good_gates(), stream, gate) }
    }
    unsafe fn open(&self, gate: Gate) -> Result<(), Fault> {
        // SAFETY: forwarded.
        unsafe { self.good_gates().open(gate) }
    }
    unsafe fn destroy(&self, gate: Gate) {
        // SAFETY: forwarded.
        unsafe { self.defect.gate_destroy(self.good_gates(), gate) }
    }
}

impl<D: Defect> Graphs for Mutant<D> {
    fn limits(&self) -> GraphsLimits {
        self.good_graphs().limits()
    }
    unsafe fn begin(&self, stream: StreamId, mode: CaptureMode) -> Result<CaptureId, Fault> {
        // SAFETY: forwarded.
        unsafe { self.good_graphs().begin(stream, mode) }
    }
    unsafe fn capture_id(&self, stream: StreamId) -> Result<Option<CaptureId>, Fault> {
        // SAFETY: forwarded.
        unsafe { self.good_graphs().capture_id(stream) }
    }
    unsafe fn end(&self, stream: StreamId) -> Result<GraphExec, Fault> {
        // SAFETY: forwarded.
        unsafe { self.good_graphs().end(stream) }
    }
    unsafe fn abort(&self, stream: StreamId) {
        // SAFETY: forwarded.
        unsafe { self.good_graphs().abort(stream) };
    }
    unsafe fn build(&self, nodes: Vec<GraphNode>) -> Result<GraphExec, Fault> {
        // SAFETY: forwarded.
        unsafe { self.defect.build(self.good_graphs(), nodes) }
    }
    unsafe fn replay(&self, graph: GraphExec, stream: StreamId) -> Result<(), Fault> {
        // SAFETY: forwarded.
        unsafe { self.defect.replay(self.good_graphs(), graph, stream) }
    }
    unsafe fn update(&self, graph: GraphExec, node: u32, op: Op) -> Result<(), Fault> {
        // SAFETY: forwarded.
        unsafe { self.defect.update(self.good_graphs(), graph, node, op) }
    }
    unsafe fn destroy(&self, graph: GraphExec) {
        if !D::LEAKS {
            // SAFETY: forwarded.
            unsafe { self.good_graphs().destroy(graph) };
        }
    }
}

/// `good` with the defect in each driver that it makes.
pub(crate) fn spoilt<D: Defect>(good: Subject) -> Subject {
    let name = std::any::type_name::<D>();
    let kind = good.kind();
    Subject::new(kind, move |ask| {
        let made = good.make(ask)?;
        let driver = MutantDriver { good: made.driver(), defect: Arc::new(D::default()) };
        Ok(made.with_driver(Arc::new(driver)))
    })
    .named(name)
}

/// Runs the cases on the mutant; each of them has to fail.
pub(crate) fn must_fail<D: Defect>(good: Subject, cases: &[&str]) {
    for case in cases {
        let options = Options { filter: vec![(*case).into()], timeout: Duration::from_secs(3), ..Options::default() };
        let report = run(&spoilt::<D>(good.clone()), &options);
        assert_eq!(report.cases.len(), 1, "{case} is no case");
        assert_eq!(report.failures().count(), 1, "{} gets away with it:\n{report}", std::any::type_name::<D>());
        println!("{report}");
    }
}

/// Runs the same cases on the good backend in the same wrapping; each has to pass.
pub(crate) fn must_pass(good: Subject, cases: &[&str]) {
    let filter = cases.iter().map(|&case| case.into()).collect();
    let report = run(&spoilt::<Sound>(good), &Options { filter, ..Options::default() });
    assert!(report.is_ok() && report.tally().skipped == 0, "{report}");
}

/// Where a defect's tests begin.
pub(crate) fn host() -> Subject {
    subjects::host()
}

/// The same for those that need a device to be lost or work to fail.
pub(crate) fn sim() -> Subject {
    subjects::sim()
}

/// Nothing is visible.
pub(crate) fn nothing() -> Probe {
    Probe::absent(Absence::Masked { name: "NOWHERE", value: String::new() })
}
