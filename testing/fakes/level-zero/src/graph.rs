//! Recording what is appended to immediate lists, and replaying it.
//!
//! A list that waits for an event which a recorded command is to signal is recorded too. A graph keeps its commands in the
//! order in which they were appended, which fits all that was said between them; replayed, they run one behind the other.

use crate::abi::*;
use crate::call::{Registry, Result, array, exports, get, lock, put};
use crate::event::{self, Event};
use crate::lane::{Command, Order};
use crate::list::{Kind, List, live};
use crate::work::Work;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Answers of the functions that ask.
pub(crate) const ZE_RESULT_QUERY_TRUE: Code = 0x7fff_0000;
pub(crate) const ZE_RESULT_QUERY_FALSE: Code = 0x7fff_0001;

/// A recording under way.
pub(crate) struct Capture {
    first: Handle,
    /// The graph that the caller gave, or 0.
    into: Handle,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    commands: Vec<Command>,
    lists: Vec<Arc<List>>,
    /// Of each list the place of its last command, if nobody has waited for that.
    open: BTreeMap<Handle, usize>,
    /// Events by their addresses: which command signals them.
    signals: BTreeMap<usize, (Handle, usize)>,
}

struct Graph {
    context: Handle,
    commands: Mutex<Arc<Vec<Command>>>,
}

static GRAPHS: Registry<Graph> = Registry::new(0x0060_0000_0000);
static EXECUTABLES: Registry<Arc<Vec<Command>>> = Registry::new(0x0068_0000_0000);
/// Recordings under way, and how many: most often none.
static CAPTURES: Mutex<Vec<Arc<Capture>>> = Mutex::new(Vec::new());
static ACTIVE: AtomicUsize = AtomicUsize::new(0);

fn address(event: &Arc<Event>) -> usize {
    Arc::as_ptr(event) as usize
}

impl Capture {
    fn record(&self, list: &List, mut command: Command) {
        let mut state = lock(&self.state);
        let at = state.commands.len();
        let mut inside = Vec::new();
        command.waits.retain(|event| match state.signals.get(&address(event)) {
            // The order of the graph sees to it.
            Some(&from) => {
                inside.push(from);
                false
            }
            None => true,
        });
        for (from, place) in inside {
            if state.open.get(&from) == Some(&place) && from != list.handle {
                state.open.remove(&from);
            }
        }
        if let Some(event) = &command.signal {
            state.signals.insert(address(event), (list.handle, at));
        }
        state.open.insert(list.handle, at);
        command.order = Order::Barrier;
        state.commands.push(command);
    }
}

/// Takes a command for the recording that its list is in, or that it joins; gives back what is to run.
pub(crate) fn take(list: &List, of: &Mutex<Option<Arc<Capture>>>, command: Command) -> Result<Option<Command>> {
    if ACTIVE.load(Ordering::Acquire) == 0 {
        return Ok(Some(command));
    }
    let mut capture = lock(of);
    if capture.is_none() {
        let signaled_in = |capture: &&Arc<Capture>| {
            let state = lock(&capture.state);
            command.waits.iter().any(|event| state.signals.contains_key(&address(event)))
        };
        *capture = lock(&CAPTURES).iter().find(signaled_in).cloned();
        if let Some(capture) = &*capture {
            let this = crate::list::LISTS.get(list.handle)?;
            lock(&capture.state).lists.push(this);
        }
    }
    match &*capture {
        Some(capture) => {
            capture.record(list, command);
            Ok(None)
        }
        None => Ok(Some(command)),
    }
}

fn slot(list: &List) -> Result<&Mutex<Option<Arc<Capture>>>> {
    match &list.kind {
        Kind::Immediate { capture, .. } => Ok(capture),
        Kind::Regular { .. } => Err(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE),
    }
}

fn begin(list: Handle, into: Handle) -> Result {
    let list = live(list)?;
    let mut capture = lock(slot(&list)?);
    if capture.is_some() {
        return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
    }
    let state = Mutex::new(State { lists: vec![Arc::clone(&list)], ..State::default() });
    let new = Arc::new(Capture { first: list.handle, into, state });
    lock(&CAPTURES).push(Arc::clone(&new));
    ACTIVE.fetch_add(1, Ordering::SeqCst);
    *capture = Some(new);
    Ok(())
}

fn begin_into(list: Handle, graph: Handle) -> Result {
    let found = GRAPHS.get(graph)?;
    if !lock(&found.commands).is_empty() || found.context != live(list)?.context {
        return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
    }
    begin(list, graph)
}

/// Ends a recording; the handle of its graph.
fn end(list: Handle) -> Result<Handle> {
    let list = live(list)?;
    let capture = lock(slot(&list)?).clone().filter(|capture| capture.first == list.handle);
    let capture = capture.ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)?;
    lock(&CAPTURES).retain(|other| !Arc::ptr_eq(other, &capture));
    ACTIVE.fetch_sub(1, Ordering::SeqCst);
    let State { commands, lists, open, .. } = std::mem::take(&mut *lock(&capture.state));
    for list in &lists {
        *lock(slot(list)?) = None;
    }
    // A list that was never waited for would go on outside of the graph.
    if open.keys().any(|&other| other != list.handle) {
        return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
    }
    let commands = Arc::new(commands);
    match capture.into {
        0 => Ok(GRAPHS.add(Graph { context: list.context, commands: Mutex::new(commands) })),
        graph => {
            *lock(&GRAPHS.get(graph)?.commands) = commands;
            Ok(graph)
        }
    }
}

fn answer(yes: bool) -> Result {
    Err(if yes { ZE_RESULT_QUERY_TRUE } else { ZE_RESULT_QUERY_FALSE })
}

fn append(list: Handle, graph: Handle, signal: Handle, waits: &[Handle]) -> Result {
    let list = live(list)?;
    let Kind::Immediate { lane, capture, .. } = &list.kind else {
        return Err(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE);
    };
    let graph = EXECUTABLES.get(graph)?;
    let signal = event::to_signal(signal, list.context, list.device)?;
    let waits = event::usable(waits, list.context, list.device)?;
    let edge = |signal, waits| Command { work: Work::Nothing, order: Order::Barrier, signal, waits, of: None };
    let mut commands = Vec::new();
    for command in [edge(None, waits)].into_iter().chain(graph.iter().cloned()).chain([edge(signal, Vec::new())]) {
        commands.extend(take(&list, capture, command)?);
    }
    lane.push(commands)
}

exports! {
    fn zeGraphCreateExp(context: Handle, out: *mut Handle, _next: *mut c_void) {
        let context = crate::driver_calls::CONTEXTS.get(context)?.handle;
        put(out, GRAPHS.add(Graph { context, commands: Mutex::default() }))
    }

    fn zeCommandListBeginGraphCaptureExp(list: Handle, _next: *mut c_void) {
        begin(list, 0)
    }

    fn zeCommandListBeginCaptureIntoGraphExp(list: Handle, graph: Handle, _next: *mut c_void) {
        begin_into(list, graph)
    }

    fn zeCommandListEndGraphCaptureExp(list: Handle, out: *mut Handle, _next: *mut c_void) {
        let graph = end(list)?;
        if out.is_null() { Ok(()) } else { put(out, graph) }
    }

    fn zeCommandListInstantiateGraphExp(graph: Handle, out: *mut Handle, _next: *mut c_void) {
        get(out)?;
        let commands = Arc::clone(&lock(&GRAPHS.get(graph)?.commands));
        put(out, EXECUTABLES.add(commands))
    }

    fn zeCommandListAppendGraphExp(
        list: Handle,
        graph: Handle,
        _next: *mut c_void,
        signal: Handle,
        count: u32,
        waits: *const Handle,
    ) {
        append(list, graph, signal, array(waits, count)?)
    }

    fn zeGraphDestroyExp(graph: Handle) {
        GRAPHS.remove(graph, |_| Ok(())).map(drop)
    }

    fn zeExecutableGraphDestroyExp(graph: Handle) {
        EXECUTABLES.remove(graph, |_| Ok(())).map(drop)
    }

    fn zeCommandListIsGraphCaptureEnabledExp(list: Handle) {
        let list = live(list)?;
        answer(lock(slot(&list)?).is_some())
    }

    fn zeGraphIsEmptyExp(graph: Handle) {
        answer(lock(&GRAPHS.get(graph)?.commands).is_empty())
    }

    fn zeGraphDumpContentsExp(graph: Handle, path: *const c_char, _next: *mut c_void) {
        get(path)?;
        GRAPHS.get(graph)?;
        Err(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE)
    }

    fn zeGraphCreateExt(context: Handle, _next: *const c_void, out: *mut Handle) {
        let context = crate::driver_calls::CONTEXTS.get(context)?.handle;
        put(out, GRAPHS.add(Graph { context, commands: Mutex::default() }))
    }

    fn zeCommandListBeginGraphCaptureExt(list: Handle, _next: *const c_void) {
        begin(list, 0)
    }

    fn zeCommandListBeginCaptureIntoGraphExt(list: Handle, graph: Handle, _next: *const c_void) {
        begin_into(list, graph)
    }

    fn zeCommandListEndGraphCaptureExt(list: Handle, _next: *const c_void, out: *mut Handle) {
        let graph = end(list)?;
        if out.is_null() { Ok(()) } else { put(out, graph) }
    }

    fn zeGraphInstantiateExt(graph: Handle, _next: *const c_void, out: *mut Handle) {
        get(out)?;
        let commands = Arc::clone(&lock(&GRAPHS.get(graph)?.commands));
        put(out, EXECUTABLES.add(commands))
    }

    fn zeCommandListAppendGraphExt(
        list: Handle,
        graph: Handle,
        _next: *const c_void,
        signal: Handle,
        count: u32,
        waits: *const Handle,
    ) {
        append(list, graph, signal, array(waits, count)?)
    }

    fn zeGraphDestroyExt(graph: Handle) {
        GRAPHS.remove(graph, |_| Ok(())).map(drop)
    }

    fn zeExecutableGraphDestroyExt(graph: Handle) {
        EXECUTABLES.remove(graph, |_| Ok(())).map(drop)
    }

    fn zeCommandListIsGraphCaptureEnabledExt(list: Handle) {
        let list = live(list)?;
        answer(lock(slot(&list)?).is_some())
    }

    fn zeGraphIsEmptyExt(graph: Handle) {
        answer(lock(&GRAPHS.get(graph)?.commands).is_empty())
    }
}
