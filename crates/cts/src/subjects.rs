//! The backends of this repository, and plugins, as subjects.

use crate::subject::{Made, Subject};
use anyaccel_abi::{LoadError, Plugin};
use anyaccel_hal::Kind;
use anyaccel_host::HostConfig;
use anyaccel_opencl::{Addressing, OpenClConfig};
use anyaccel_sim::{Execution, Interleaving, SimConfig};
use std::path::Path;
use std::sync::Arc;

/// Every backend of this repository that this machine could have, by the name of its kind.
pub fn all() -> Vec<Subject> {
    vec![cuda(), host(), opencl(), sim(), xpu()]
}

/// NVIDIA GPUs, by the driver that this machine has.
pub fn cuda() -> Subject {
    Subject::new(Kind::CUDA, |_| Ok(Made::new(anyaccel_cuda::driver())))
        .never("process.threads-end", "the vendor's driver keeps threads of its own until the process ends")
}

/// The host device: this machine's memory and cores.
pub fn host() -> Subject {
    Subject::new(Kind::HOST, |ask| {
        let config = HostConfig::new().devices(ask.devices).memory(ask.memory);
        Ok(Made::new(anyaccel_host::driver_with(config)))
    })
}

/// The OpenCL devices of this machine, CPUs too, each with as much memory as a case asks for. A machine with one has it twice.
pub fn opencl() -> Subject {
    opencl_as(OpenClConfig::new())
}

/// The same with memory in that form alone, called `opencl, svm` say.
pub fn opencl_by(addressing: Addressing) -> Subject {
    opencl_as(OpenClConfig::new().addressing(addressing)).named(format!("opencl, {}", addressing.name()))
}

fn opencl_as(config: OpenClConfig) -> Subject {
    const THREADS: &str = "a platform keeps its threads for good; tests of the backend count those of its own";
    const RESTART: &str = "a platform does not survive a fork, so the kind never starts again in a child";
    Subject::new(Kind::OPENCL, move |ask| {
        let config = config.clone().cpus(true).memory(ask.memory).at_least(ask.devices);
        Ok(Made::new(anyaccel_opencl::driver_with(config)))
    })
    .never("process.threads-end", THREADS)
    .never("fork.restarts", RESTART)
    .never("fork.no-deadlock/restarts", RESTART)
    .never("fork.no-deadlock/start", RESTART)
    .never("random.after-a-fork", RESTART)
    .never("random.after-a-fork/fresh", RESTART)
}

/// The simulated device with threads of its own: every rule to the letter. Streams are interleaved at random from the
/// seed.
pub fn sim() -> Subject {
    without_wall_clock(simulated(Execution::Background))
}

/// The simulated device without threads, whose work runs on the thread that looks.
pub fn sim_on_look() -> Subject {
    const LOOK: &str = "work runs on the thread that looks, so nothing goes on while nobody does";
    const INLINE: &str = "functions of users run on the thread that waits, so one that blocks blocks the case";
    without_wall_clock(simulated(Execution::OnLook).named("sim, on look"))
        .never("progress.*", LOOK)
        .never("functions.panic-at-query", LOOK)
        .never("order.across-streams/host-fn", INLINE)
        .never("host_fn.holds-up-its-stream", INLINE)
        .never("host_fn.blocked-ones-wait-for-each-other", INLINE)
        .never("host_fn.no-lock-held", INLINE)
        .never("reuse.function-waits-for-an-allocation", INLINE)
        .never("life.dropped-inside-a-host-function", INLINE)
}

/// Intel GPUs, by the Level Zero loader and the driver that this machine has.
pub fn xpu() -> Subject {
    Subject::new(Kind::XPU, |_| Ok(Made::new(anyaccel_xpu::driver())))
        .never("process.threads-end", "the vendor's driver keeps threads of its own until the process ends")
}

/// A vendor's plugin, by its absolute path, which is its name in reports. It has the devices and the memory that it has: the
/// suite asks it for none.
///
/// # Errors
/// Why the library is no plugin.
pub fn plugin(path: impl AsRef<Path>) -> Result<Subject, LoadError> {
    let plugin = Plugin::load(path)?;
    let subject = Subject::new(plugin.kind(), move |_| Ok(Made::new(plugin.driver())));
    Ok(subject.named(plugin.path().to_string_lossy()))
}

/// The subject of that name: one of a list, or a plugin by its path.
pub(crate) fn named(name: &str, subjects: &[Subject]) -> Result<Subject, String> {
    match subjects.iter().find(|subject| subject.name() == name) {
        Some(subject) => Ok(subject.clone()),
        None if Path::new(name).is_absolute() => plugin(name).map_err(|error| error.to_string()),
        None => Err(format!("no subject {name}")),
    }
}

fn without_wall_clock(subject: Subject) -> Subject {
    const VIRTUAL: &str = "its clock is virtual: what the host sees of time it does not";
    const SQUARE: &str = "each step looks at all its streams, so 1000 lanes beside 1000 streams take a minute";
    subject
        .never("time.at-its-turn", VIRTUAL)
        .never("time.within-the-hosts-time", VIRTUAL)
        .never("order.thousand-streams@recorded", SQUARE)
}

fn simulated(execution: Execution) -> Subject {
    Subject::new(Kind::SIM, move |ask| {
        let memories = (0..ask.devices).map(|_| ask.memory);
        let sim = SimConfig::new()
            .memories(memories)
            .interleaving(Interleaving::Seeded(ask.seed))
            .execution(execution)
            .build();
        let (losing, failing, complaining) = (sim.clone(), sim.clone(), sim.clone());
        let made = Made::new(Arc::new(sim.driver()))
            .loses(move |ordinal| losing.lose_device(ordinal))
            .fails_work(move |stream, fault| failing.fail_work(stream, fault));
        Ok(made.complains(move || complaining.violations().iter().map(ToString::to_string).collect()))
    })
}
