//! Which operation runs next, and what its run does.
//!
//! Whoever holds the lock may take a step: the first operation of a stream that nothing holds up takes effect. A step
//! that runs code of a user's hands it out as [`UserWork`], to be run without the lock.

use crate::config::Interleaving;
use crate::handle;
use crate::memory::Span;
use crate::state::{Debris, State, in_host_fn};
use crate::stream::{Aligned, Code, Item, LaunchArg, Side, Stream, Work};
use anyaccel_hal::{Gate, HostFn, HostKernel, HostStatus, KernelArg, Launch, StreamId, WorkGroup};

/// An operation that has run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Executed {
    /// On which stream.
    pub stream: StreamId,
    /// Its number among the stream's operations, from 1.
    pub number: u64,
    /// What it was: `copy`, `fill`, `write`, `host_call`, `launch`, `wait`, `gate`, `mark`, `stamp`.
    pub what: &'static str,
    /// When it began, in virtual nanoseconds.
    pub begin: u64,
    /// When it ended.
    pub end: u64,
}

/// What the first operation of a stream is up to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Head {
    /// There is none.
    Empty,
    /// It is a user's code, and running.
    Running,
    /// It can run.
    Ready,
    /// It can run, and is a user's code.
    ReadyUserCode,
    /// It waits for a mark of that stream.
    Behind(StreamId),
    /// It waits for a gate.
    Closed(Gate),
}

/// Picks among the streams that can run.
pub(crate) struct Picker {
    mode: Interleaving,
    random: u64,
    last: Option<StreamId>,
    picked: usize,
}

/// One step of splitmix64.
pub(crate) fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Picker {
    pub(crate) fn new(mode: Interleaving) -> Self {
        let random = if let Interleaving::Seeded(seed) = mode { seed } else { 0 };
        Self { mode, random, last: None, picked: 0 }
    }

    pub(crate) fn mode(&self) -> &Interleaving {
        &self.mode
    }

    /// How many steps a look takes.
    fn steps_of_a_look(&mut self) -> usize {
        match self.mode {
            Interleaving::Seeded(_) => 1 + (random(&mut self.random) % 8) as usize,
            Interleaving::Manual => 0,
            _ => usize::MAX,
        }
    }

    fn round_robin(&mut self, ready: &[StreamId]) -> Option<StreamId> {
        let next = ready.iter().find(|&&id| self.last.is_none_or(|last| id > last)).or(ready.first()).copied();
        self.last = next.or(self.last);
        next
    }

    /// One of `ready`, which is in the order of the handles.
    fn pick(&mut self, ready: &[StreamId], created: &[StreamId], end: impl Fn(StreamId) -> u64) -> Option<StreamId> {
        match &self.mode {
            Interleaving::Eager | Interleaving::RoundRobin | Interleaving::Manual => self.round_robin(ready),
            Interleaving::Seeded(_) => {
                let at = random(&mut self.random) as usize % ready.len().max(1);
                ready.get(at).copied()
            }
            Interleaving::ByTime => ready.iter().copied().min_by_key(|&id| (end(id), id)),
            Interleaving::Picks(picks) => {
                while let Some(&index) = picks.get(self.picked) {
                    self.picked += 1;
                    if let Some(id) = created.get(index).filter(|id| ready.contains(id)) {
                        return Some(*id);
                    }
                }
                self.round_robin(ready)
            }
            Interleaving::Chosen(choose) => choose(ready).filter(|id| ready.contains(id)),
        }
    }
}

impl State {
    pub(crate) fn head(&self, id: StreamId) -> Head {
        let Some(stream) = self.streams.get(&id) else { return Head::Empty };
        if stream.running {
            return Head::Running;
        }
        match stream.queue.front().map(|item| &item.work) {
            None => Head::Empty,
            Some(Work::Wait { of, mark }) => match self.streams.get(of) {
                Some(other) if other.ended < *mark => Head::Behind(*of),
                _ => Head::Ready,
            },
            Some(Work::Gate(gate)) => match self.gates.get(gate) {
                Some(state) if !state.open => Head::Closed(*gate),
                _ => Head::Ready,
            },
            Some(work) if work.is_user_code() => Head::ReadyUserCode,
            Some(_) => Head::Ready,
        }
    }

    /// What the end of a stream's work hangs on: the stream whose first operation must go next, and what it is up to.
    pub(crate) fn hangs_on(&self, id: StreamId) -> (StreamId, Head) {
        let mut at = id;
        loop {
            // Waits name marks that were there before them, so this comes to an end.
            match self.head(at) {
                Head::Behind(of) => at = of,
                head => return (at, head),
            }
        }
    }

    /// The streams whose first operation can run, in the order of their handles.
    pub(crate) fn ready(&self, user_code: bool) -> Vec<StreamId> {
        let can_run = |&id: &StreamId| match self.head(id) {
            Head::Ready => true,
            Head::ReadyUserCode => user_code,
            _ => false,
        };
        self.active.iter().copied().filter(can_run).collect()
    }

    /// When the first operation of a stream begins and ends, if it goes now.
    fn times(&self, id: StreamId) -> (u64, u64) {
        let Some((stream, item)) = self.streams.get(&id).and_then(|stream| Some((stream, stream.queue.front()?)))
        else {
            return (0, 0);
        };
        let after = match &item.work {
            Work::Wait { of, mark } => self.streams.get(of).map_or(0, |other| other.times.of(*mark)),
            Work::Gate(gate) => self.gates.get(gate).map_or(0, |gate| gate.opened),
            _ => 0,
        };
        let begin = stream.time.max(item.since).max(after);
        (begin, begin.saturating_add(self.cost(stream, &item.work)))
    }

    pub(crate) fn end_of_head(&self, id: StreamId) -> u64 {
        self.times(id).1
    }

    fn cost(&self, stream: &Stream, work: &Work) -> u64 {
        let costs = &self.devices[stream.ordinal as usize].costs;
        match work {
            Work::Copy { dst: Side::Span(dst), src: Side::Span(src), len } if self.within_a_device(dst, src) => {
                costs.local(*len)
            }
            Work::Copy { len, .. } => costs.transfer(*len),
            Work::Fill { dst, .. } => costs.fill(dst.len),
            Work::Launch { launch, .. } => costs.launch(launch.groups.iter().map(|&n| u64::from(n)).product()),
            Work::Write { .. } | Work::HostCall(_) => costs.op_ns,
            Work::Wait { .. } | Work::Gate(_) | Work::Mark(_) | Work::Stamp(_) => 0,
        }
    }

    fn within_a_device(&self, dst: &Span, src: &Span) -> bool {
        let ordinal = handle::device_of(dst.mem.0);
        let space = &self.devices[ordinal as usize].space;
        handle::device_of(src.mem.0) == ordinal && space.has(dst.mem) && space.has(src.mem)
    }

    /// Picks a stream that can run: with `needed`, one in any case.
    pub(crate) fn pick(&mut self, user_code: bool, needed: Option<StreamId>) -> Option<StreamId> {
        if self.paused || matches!(self.picker.mode, Interleaving::Manual) {
            return needed;
        }
        let mut ready = self.ready(user_code);
        if let Some(needed) = needed
            && let Err(at) = ready.binary_search(&needed)
        {
            ready.insert(at, needed);
        }
        let mut picker = std::mem::replace(&mut self.picker, Picker::new(Interleaving::Manual));
        let picked = picker.pick(&ready, &self.created, |id| self.end_of_head(id));
        self.picker = picker;
        picked.or(needed)
    }

    /// Somebody looks: runs what the interleaving lets run, but no code of users.
    pub(crate) fn look(&mut self) {
        if self.active.is_empty() {
            return;
        }
        let by_time = matches!(self.picker.mode, Interleaving::ByTime);
        for _ in 0..self.picker.steps_of_a_look() {
            let Some(id) = self.pick(false, None) else { break };
            if by_time && self.end_of_head(id) > self.now {
                break;
            }
            // User code is never picked here.
            let none = self.step(id);
            debug_assert!(none.is_none());
        }
    }

    /// Runs the first operation of a stream, which must be ready. A user's code is handed out instead: whoever gets it
    /// runs it without the lock and calls [`State::ended`] then.
    pub(crate) fn step(&mut self, id: StreamId) -> Option<UserWork> {
        let (begin, end) = self.times(id);
        let stream = self.streams.get_mut(&id)?;
        let ordinal = stream.ordinal;
        let mut item = stream.queue.pop_front()?;
        if item.work.is_effect() {
            if let Some(left) = &mut self.devices[ordinal as usize].lose_after {
                *left -= 1;
                if *left == 0 {
                    stream.queue.push_front(item);
                    self.lose(ordinal);
                    return None;
                }
            }
            if let Some(fault) = stream.fail_next.take() {
                stream.fault.get_or_insert(fault);
                if let Work::HostCall(function) = item.work {
                    self.cancelled.extend(function);
                } else {
                    self.end_uses(&item.work);
                    self.debris.push(Debris::Work(item.work));
                }
                self.ended(id, "failed", begin, end);
                return None;
            }
        }
        self.orders(id, &item.knows, &item.work);
        let what = item.work.name();
        let stream = self.streams.get_mut(&id)?;
        match &mut item.work {
            Work::Mark(mark) => {
                stream.ended = *mark;
                stream.times.ended(*mark, end);
            }
            Work::Stamp(stamp) => {
                if let Some(state) = self.stamps.get_mut(stamp) {
                    state.time = Some(end);
                }
            }
            Work::Wait { .. } => {}
            Work::Gate(gate) => {
                // A test's hold has done its part.
                if self.gates.get(gate).is_some_and(|state| state.hold) {
                    self.gates.remove(gate);
                }
            }
            Work::HostCall(_) => {
                stream.running = true;
                let status = if stream.fault.is_some() { HostStatus::Cancelled } else { HostStatus::Run };
                return Some(UserWork { stream: id, item, begin, end, order: Order::Rising(0), status });
            }
            Work::Launch { code, launch, .. } => {
                let order = self.group_order(launch);
                if let Code::Builtin(_) = code {
                    launch_now(&mut item.work, &order);
                } else if let Some(stream) = self.streams.get_mut(&id) {
                    stream.running = true;
                    return Some(UserWork { stream: id, item, begin, end, order, status: HostStatus::Run });
                }
            }
            Work::Copy { dst, src, len } => copy(dst, src, *len),
            Work::Fill { dst, pattern } => fill(dst, pattern.bytes()),
            Work::Write { dst, bytes } => {
                if let Some(ptr) = dst.ptr() {
                    // SAFETY: H4: the span was checked and its memory is kept alive; H6 makes it this one's turn.
                    unsafe { ptr.copy_from_nonoverlapping(bytes.bytes().as_ptr(), bytes.bytes().len()) };
                }
            }
        }
        self.end_uses(&item.work);
        self.debris_of(item);
        self.ended(id, what, begin, end);
        None
    }

    /// Operations of a stream that have not ended. What takes no time and that nothing holds up (a mark, a wait for what
    /// has ended) doesn't count: it passes now.
    pub(crate) fn left_to_do(&mut self, id: StreamId) -> u64 {
        while self.head(id) == Head::Ready && self.streams[&id].queue.front().is_some_and(|item| !item.work.is_effect())
        {
            self.step(id);
        }
        self.streams.get(&id).map_or(0, |stream| stream.enqueued - stream.done)
    }

    /// Keeps what must not be dropped under the lock.
    fn debris_of(&mut self, item: Item) {
        if matches!(item.work, Work::Launch { .. }) {
            self.debris.push(Debris::Work(item.work));
        }
    }

    /// An operation of a stream has ended.
    pub(crate) fn ended(&mut self, id: StreamId, what: &'static str, begin: u64, end: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.running = false;
        stream.time = stream.time.max(end);
        // A device lost in between has counted everything as done already.
        stream.done = stream.enqueued.min(stream.done + 1);
        let executed = Executed { stream: id, number: stream.done, what, begin, end };
        if stream.queue.is_empty() {
            self.active.remove(&id);
        }
        if self.trace_kept > 0 {
            if self.trace.len() == self.trace_kept {
                self.trace.pop_front();
            }
            self.trace.push_back(executed);
        }
    }

    /// In which order the groups of a launch run: any is right, a seeded simulation tries many.
    fn group_order(&mut self, launch: &Launch) -> Order {
        let count = launch.groups.iter().map(|&n| u64::from(n)).product();
        if !matches!(self.picker.mode, Interleaving::Seeded(_)) || count > Order::SHUFFLED_UP_TO {
            return Order::Rising(count);
        }
        let mut order: Vec<u64> = (0..count).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, random(&mut self.picker.random) as usize % (at + 1));
        }
        Order::Shuffled(order)
    }
}

/// The order of the groups of a launch, by their linear numbers, x fastest.
pub(crate) enum Order {
    Rising(u64),
    Shuffled(Vec<u64>),
}

impl Order {
    const SHUFFLED_UP_TO: u64 = 1 << 16;

    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        let (rising, shuffled): (u64, &[u64]) = match self {
            Self::Rising(count) => (*count, &[]),
            Self::Shuffled(order) => (0, order),
        };
        (0..rising).chain(shuffled.iter().copied())
    }
}

fn side_ptr(side: &Side) -> Option<*mut u8> {
    match side {
        Side::Span(span) => span.ptr(),
        Side::Host(ptr) => Some(ptr.0),
    }
}

fn copy(dst: &Side, src: &Side, len: u64) {
    if let (Some(dst), Some(src)) = (side_ptr(dst), side_ptr(src)) {
        // SAFETY: H4 and H5: both ends are valid for `len` bytes and it is this operation's turn (H6). Places were checked not
        // to overlap; `copy_from` bears what two names for one host memory may do.
        unsafe { dst.copy_from(src, len as usize) };
    }
}

fn fill(dst: &Span, pattern: &[u8]) {
    let Some(ptr) = dst.ptr() else { return };
    // SAFETY: H4: the span was checked and its memory is kept alive; H6 makes it this one's turn.
    let bytes = unsafe { std::slice::from_raw_parts_mut(ptr, dst.len as usize) };
    for chunk in bytes.chunks_mut(pattern.len()) {
        chunk.copy_from_slice(&pattern[..chunk.len()]);
    }
}

/// A user's code whose turn has come.
pub(crate) struct UserWork {
    pub(crate) stream: StreamId,
    pub(crate) item: Item,
    begin: u64,
    end: u64,
    order: Order,
    /// H33: a host function behind failed work is cancelled.
    status: HostStatus,
}

impl UserWork {
    /// Runs it. Never under the lock.
    pub(crate) fn run(&mut self) {
        let status = self.status;
        match &mut self.item.work {
            Work::HostCall(function) => in_host_fn(|| {
                // Dropped here, where it may block, and before the stream goes on.
                if let Some(mut function) = function.take() {
                    function.call(status);
                }
            }),
            work => launch_now(work, &self.order),
        }
    }

    /// Ends it without a run, when nobody is left to whom it could be reported.
    pub(crate) fn cancel(self) {
        if let Work::HostCall(Some(function)) = self.item.work {
            cancel(function);
        }
    }

    /// Reports that it has run.
    pub(crate) fn report(self, state: &mut State) {
        state.end_uses(&self.item.work);
        state.ended(self.stream, self.item.work.name(), self.begin, self.end);
        state.debris.push(Debris::Work(self.item.work));
    }
}

/// Tells a host function that its turn can't come, and drops it.
pub(crate) fn cancel(mut function: HostFn) {
    in_host_fn(|| {
        function.call(HostStatus::Cancelled);
        drop(function);
    });
}

fn launch_now(work: &mut Work, order: &Order) {
    let Work::Launch { code, launch, args } = work else { return };
    let mut passed = Vec::with_capacity(args.len());
    for arg in args.iter_mut() {
        passed.push(match arg {
            LaunchArg::Span(span) => match span.ptr() {
                Some(ptr) => KernelArg { ptr, len: span.len },
                // Without contents there is nothing to compute.
                None => return,
            },
            LaunchArg::Bytes(bytes) => KernelArg { len: bytes.len() as u64, ptr: bytes.as_mut_ptr() },
            // Filled in for each group.
            LaunchArg::Local(len) => KernelArg { ptr: std::ptr::null_mut(), len: *len as u64 },
        });
    }
    match code {
        Code::Host(kernel) => run_groups(kernel, launch, args, &mut passed, order),
        Code::Builtin(number) => {
            let none = Aligned::new(0, 0);
            let params =
                args.iter().rev().find_map(|arg| if let LaunchArg::Bytes(bytes) = arg { Some(bytes) } else { None });
            crate::builtins::run(*number, &passed, params.unwrap_or(&none), order);
        }
    }
}

fn run_groups(kernel: &HostKernel, launch: &Launch, args: &[LaunchArg], passed: &mut [KernelArg], order: &Order) {
    for group in groups(launch, order) {
        let mut locals: Vec<Aligned> = Vec::new();
        for (arg, passed) in args.iter().zip(passed.iter_mut()) {
            if let LaunchArg::Local(len) = arg {
                let mut local = Aligned::new(*len, 0xa5);
                passed.ptr = local.as_mut_ptr();
                // Its words stay where they are when `local` moves.
                locals.push(local);
            }
        }
        // SAFETY: H15: the caller of launch promised that the arguments match; H4 and H6: their memory is this one's now.
        unsafe { kernel.run(&group, passed) };
    }
}

/// The groups of a launch in that order.
fn groups(launch: &Launch, order: &Order) -> impl Iterator<Item = WorkGroup> {
    let (groups, threads, shared) = (launch.groups, launch.threads, launch.shared);
    let (x, y) = (u64::from(groups[0]), u64::from(groups[1]));
    order.iter().map(move |n| {
        let index = [(n % x) as u32, (n / x % y) as u32, (n / (x * y)) as u32];
        WorkGroup { index, groups, threads, shared }
    })
}
