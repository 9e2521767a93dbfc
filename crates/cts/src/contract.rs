//! The sentences of the public contract that concern what exists, by subject, each in a few words of our own.

/// A promise of the face.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sentence {
    pub(crate) id: &'static str,
    /// What is promised, in short.
    pub(crate) text: &'static str,
    /// Why no case can prove it, where none can.
    pub(crate) no_case: Option<&'static str>,
}

const fn says(id: &'static str, text: &'static str) -> Sentence {
    Sentence { id, text, no_case: None }
}

const fn unproven(id: &'static str, text: &'static str, reason: &'static str) -> Sentence {
    Sentence { id, text, no_case: Some(reason) }
}

const BINDINGS: &str = "a promise of the language bindings, which their own tests prove";
const MASKS: &str = "a mask is one backend's own variable, which that backend's tests prove";

/// Every sentence, in the order of the contract.
pub(crate) const SENTENCES: &[Sentence] = &[
    // What starts the runtime.
    says("start.marked", "the calls marked so start the runtime"),
    says("start.nothing-else", "nothing else does: naming, counting, unrecorded events, synchronize, trims"),
    says("start.queries", "properties and capability start nothing where the probe can answer"),
    says("start.once", "it starts once, whoever calls first; others wait"),
    says("start.failure", "a failed start is told and leaves it fresh"),
    // Device arguments.
    says("argument.forms", "an index, a kind with index, a device, as value or text"),
    says("argument.none", "none, or a kind alone, is this thread's current device"),
    says("argument.fresh", "arguments are checked before the start, which they do not cause"),
    says("argument.negative", "a negative index is a range error"),
    says("argument.range", "out of range: one error with index and count, before and after the start"),
    says("argument.kind", "another kind is refused, naming both"),
    says("argument.text", "unknown types are refused with a list, malformed indices too"),
    unproven("argument.types", "bool, float and the like are type errors", BINDINGS),
    // Devices.
    says("device.available", "is_available never fails"),
    says("device.count", "device_count counts visible devices and never fails"),
    says("device.none", "without a device: false, 0, and one error for the rest"),
    says("device.current-accelerator", "current_accelerator names the kind in use, without index"),
    says("device.current-index", "current_device_index is this thread's choice, 0 if it never chose"),
    says("device.set-index", "set_device_index needs an index; a negative one changes nothing"),
    says("device.guard", "device_index switches and restores, nested, re-entrant, on every way out"),
    says("device.guard-argument", "device_index checks at construction; none changes nothing"),
    says("device.guard-creates-nothing", "restoring creates no context on a device that had none"),
    says("device.capability", "every dtype listed converts, every other is refused"),
    says("device.properties", "one property record, the same before and after the start"),
    says("device.peers", "can_device_access_peer, false for itself"),
    says("device.telemetry", "sensors read, or say why not"),
    unproven("device.masks", "masks apply until the start, then are frozen", MASKS),
    says("environment.bad", "a bad environment: quiet answers, and an error that names variable and value"),
    // Streams.
    says("stream.pool", "32 streams a device and priority, handed out in turn"),
    says("stream.priority", "priorities are clamped to the device's range"),
    says("stream.by-id", "a stream by number, device and kind"),
    says("stream.reserved", "a reserved stream has a queue of its own and a number never used again"),
    says("stream.shares-queue", "shares_queue_with tells who shares"),
    says("stream.fields", "number, device and native handle are readable"),
    says("stream.default", "the default stream of a device has number 0"),
    says("stream.equality", "equal by kind, device and number"),
    says("stream.current", "current_stream and set_stream go round; the device follows; per thread"),
    says("stream.foreign", "streams of another runtime or kind are refused"),
    says("stream.guard", "a scope restores the device and both devices' streams"),
    says("stream.synchronize", "query and synchronize of a stream"),
    says("stream.wait", "wait_stream and wait_event order later work behind earlier work"),
    says("stream.capture", "a default stream can be captured"),
    // Events.
    says("event.unrecorded", "unrecorded: query is true, waits do nothing, nothing starts"),
    says("event.record", "record, query and synchronize stand for the work before"),
    says("event.record-again", "recorded again it stands for the new place; old waits stay"),
    says("event.wait", "a stream waits for an event"),
    says("event.device", "an event stays on its device; another one is refused"),
    says("event.options", "options are honoured or refused"),
    says("event.elapsed", "elapsed_time in milliseconds, signed"),
    says("event.elapsed-errors", "kinds, devices, timing, recording, completion: refused in that order"),
    // Waiting on the host.
    says("sync.fresh", "synchronize while fresh checks its argument and returns"),
    says("sync.device", "synchronize waits for all streams of one device, and leaves the current one alone"),
    says("sync.interrupt", "a wait can end early, and the work goes on"),
    unproven("sync.gil", "waits let other Python threads run", BINDINGS),
    // Work.
    says("work.copies", "uploads, downloads, copies, fills and writes move the right bytes"),
    says("work.across-devices", "a copy between devices, direct or staged, in stream order"),
    says("work.borrowed", "a borrowed source may change as soon as the call returns"),
    says("work.pinned", "pinned memory: views wait, early drops do no harm"),
    says("work.dropped-buffer", "a dropped buffer is not used again before its work has ended"),
    says("work.built-ins", "histogram and conversion compute what is defined"),
    says("work.kernels", "kernels that are functions of this process"),
    says("work.refused", "bad ranges, lengths, overlaps and devices are refused"),
    // Memory.
    says("memory.info", "free and total memory of the device that is named"),
    says("memory.fresh", "fresh: no statistics, no trims, nothing starts; arguments are checked"),
    says("memory.stats-keys", "statistics have every documented key, sorted, both spellings of allocated"),
    says("memory.stats-count", "they count what was asked, rounded and held, by device"),
    says("memory.four-values", "allocated and reserved, now and at most, are those of the statistics"),
    says("memory.resets", "peaks become current; accumulated numbers become 0"),
    says("memory.trims", "trims release what is unused and nothing else"),
    says("memory.summary", "memory_summary is a table that a person can read"),
    says("memory.zero-bytes", "no bytes: no address, nothing counted"),
    says("memory.too-much", "sizes of 2^60 and more are refused, and nothing is counted"),
    says("memory.settings", "settings have their effect, whole or not at all; errors name key and value"),
    says("memory.budget", "a segment is requested if and only if reserved + its size <= the budget"),
    says("memory.fraction", "a fraction is floor(F x total), 1.0 no limit, others than 0 to 1 refused"),
    says("memory.report", "out of memory says what was asked, what there is, who pins it, and fitting advice"),
    says("memory.observers", "observers are told once, before the caller; a panic in one harms nobody"),
    says("memory.pools", "of nested pools the innermost wins; buffers outlive their pool"),
    says("memory.host-stats", "pinned memory has statistics and resets of its own"),
    says("memory.trims-in-capture", "trims leave a pool under capture alone"),
    says("memory.history", "what is recorded and what a snapshot shows agree, with each other and with the statistics"),
    says("error.out-of-memory", "out of memory is an error of its own, and passes"),
    // Host functions.
    says("function.order", "a function runs in stream order"),
    says("function.panic", "its panic is told once, by the next wait, and ends nothing"),
    says("function.no-calls", "the runtime refuses calls from inside"),
    says("function.drops", "handles may end inside"),
    // Deferred calls.
    says("defer.order", "deferred calls run in program order, once"),
    says("defer.coalesce", "keyed calls between two others leave only the last"),
    says("defer.bounded", "past 65,536 a call is refused"),
    says("defer.live", "once started they run at once"),
    says("defer.no-accelerator", "without an accelerator they are dropped"),
    says("defer.failed-start", "a failed start leaves the queue as it was"),
    says("defer.error", "an error carries the place that queued it"),
    says("defer.re-entry", "a deferred call may call the runtime"),
    says("defer.no-locks", "no lock is held while one runs"),
    // Graphs.
    says("graph.begin", "captures the current stream of the current device; refused inside itself, or with a graph"),
    says("graph.end", "ends on the stream where it began, else the capture goes on"),
    says("graph.replay", "does at each replay what its work would have done, on the stream current then"),
    says("graph.events", "events recorded inside order streams of the capture, and nothing else"),
    says("graph.forbidden", "waits of the host are refused by name, in every mode; the capture stays usable"),
    says("graph.pool", "a private pool: shared with nothing outside, kept by the graph, given back after it"),
    says("graph.out-of-memory", "out of memory inside a capture frees nothing and leaves it running"),
    says("graph.reset", "it can capture again; twice is harmless"),
    // Random numbers.
    says("random.fills", "every distribution has the bits of its definition on every device"),
    says("random.torch-cuda", "the layout torch-cuda has torch.cuda's numbers and offsets"),
    says("random.offset", "a fill takes its own part of the sequence, when it is enqueued"),
    says("random.stream-order", "a fill runs in stream order"),
    says("random.refused", "parameters, types and lengths out of range are refused, and nothing is drawn"),
    says("random.generator", "a generator of its own starts with torch's seed; clones are the same"),
    says("random.seeds", "seeds from -2^63 to 2^64 - 1, modulo 2^64; others change nothing"),
    says("random.state", "a state is 16 bytes, seed and offset; 8 are taken; other lengths name both"),
    says("random.defaults", "each device has a generator, with 53 random bits unless seeded"),
    says("random.reads", "reading a state starts the runtime; seeding and setting do not"),
    says("random.deferred", "seeds and states wait for the start, in order, once, the last word only"),
    says("random.no-accelerator", "without an accelerator setting is ignored and there are no states"),
    says("random.fork-rng", "fork_rng restores the states that it was asked for"),
    says("random.child", "a forked child starts from chosen seeds, else from its own"),
    // Fork.
    says("fork.fresh", "a child forked while fresh is fresh"),
    says("fork.restart", "a kind that can starts anew in the child; the parent goes on"),
    says("fork.stale", "handles from before the fork are refused, and end without harm"),
    says("fork.one-error", "a kind that can't gives one error in the child"),
    says("fork.text", "its text names the kind, the call and the process"),
    says("fork.culprit", "each starting call is named as itself"),
    says("fork.innocent", "a call that starts nothing spoils no child"),
    says("fork.no-ops", "waits, trims and deferred calls do nothing in such a child"),
    says("fork.count", "the count comes from the probe, else 0, and is_available follows"),
    says("fork.current-index", "the current device is the inherited one"),
    says("fork.no-trace", "no devices, or a failed start, leave no trace"),
    says("fork.no-deadlock", "a fork while others are inside never hangs the child"),
    // Threads, runtimes, exit.
    says("thread.current", "what is current is a thread's own"),
    says("thread.by-runtime", "and a runtime's own"),
    says("thread.any", "any call from any thread, while others wait"),
    says("thread.foreign", "handles of another runtime are refused"),
    unproven("thread.guards", "scopes can't move to another thread", "the compiler proves it"),
    says("life.handles", "handles keep their runtime alive"),
    says("life.order", "handles end in any order, with work under way"),
    says("life.runtimes", "runtimes are independent"),
    says("exit.quiet", "a process ends while handles live and work goes on"),
    // Reports from the field.
    says("scenario.1", "a fitting block is pending, the allocator gives up"),
    unproven("scenario.2", "a split limit with growable segments", "needs 16 GiB; in the tests of engine and face"),
    says("scenario.4", "a failed capture poisons the allocator for good"),
    says("scenario.5", "out of memory inside a capture frees memory"),
    says("scenario.6", "an innocent question, a dead child"),
    unproven("scenario.8", "telemetry of the wrong card", "steers a simulation's management side, in tests of its own"),
    says("scenario.9", "seeds before the start: growth and order"),
    says("scenario.12", "an event made under another device, memory given back there"),
    says("scenario.14", "a pinned source reused too early through an interior pointer"),
    says("scenario.15", "pinned rounding and hoarding"),
    says("scenario.18", "cleanup under live handles"),
    says("scenario.20", "freed only when somebody polls; something left at the end"),
    says("scenario.S2", "an observer that was attached early"),
];
