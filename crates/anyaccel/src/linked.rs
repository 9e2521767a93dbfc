//! Which backends this build has: the only file that names them, and the list of those registered at run time.

use crate::error::{Error, Result};
use crate::{fork, plugins};
use anyaccel_abi::Plugin;
use anyaccel_hal::{Driver, Kind};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Makes a driver. Starts nothing (H22, H24).
pub type Constructor = fn() -> Arc<dyn Driver>;

/// A backend that can be chosen: built in, registered, or a plugin.
#[derive(Clone, Copy)]
pub(crate) struct Linked {
    pub(crate) kind: Kind,
    origin: Origin,
}

#[derive(Clone, Copy)]
enum Origin {
    /// The second is for who asks for this kind by name.
    Constructors(Constructor, Constructor),
    Plugin(Plugin),
}

impl Linked {
    const fn new(kind: Kind, construct: Constructor) -> Self {
        Self::choosy(kind, construct, construct)
    }

    /// A kind that has more devices for who asks for it by name.
    const fn choosy(kind: Kind, construct: Constructor, by_name: Constructor) -> Self {
        Self { kind, origin: Origin::Constructors(construct, by_name) }
    }

    pub(crate) fn of_plugin(plugin: Plugin) -> Self {
        Self { kind: plugin.kind(), origin: Origin::Plugin(plugin) }
    }

    /// A new driver. Starts nothing.
    pub(crate) fn driver(self) -> Arc<dyn Driver> {
        match self.origin {
            Origin::Constructors(construct, _) => construct(),
            Origin::Plugin(plugin) => plugin.driver(),
        }
    }

    /// The same for who asks for this kind by name.
    pub(crate) fn driver_by_name(self) -> Arc<dyn Driver> {
        match self.origin {
            Origin::Constructors(_, by_name) => by_name(),
            Origin::Plugin(plugin) => plugin.driver(),
        }
    }
}

/// Built in, in the order in which one is chosen; `host` and `sim` are chosen only by name.
const BUILT_IN: &[Linked] = &[
    #[cfg(feature = "cuda")]
    Linked::new(Kind::CUDA, anyaccel_cuda::driver),
    #[cfg(feature = "xpu")]
    Linked::new(Kind::XPU, anyaccel_xpu::driver),
    #[cfg(feature = "opencl")]
    Linked::choosy(Kind::OPENCL, anyaccel_opencl::driver, anyaccel_opencl::driver_by_name),
    #[cfg(feature = "host")]
    Linked::new(Kind::HOST, anyaccel_host::driver),
    #[cfg(feature = "sim")]
    Linked::new(Kind::SIM, simulated),
];

/// A simulated device whose work runs on threads, as on any other device.
#[cfg(feature = "sim")]
fn simulated() -> Arc<dyn Driver> {
    Arc::new(anyaccel_sim::SimConfig::new().execution(anyaccel_sim::Execution::Background).build().driver())
}

/// A registered backend, leaked: a forked child reads the list without any lock.
struct Registered {
    linked: Linked,
    next: *const Registered,
}

static REGISTERED: AtomicPtr<Registered> = AtomicPtr::new(ptr::null_mut());

fn registered() -> Vec<Linked> {
    let mut all = Vec::new();
    let mut at: *const Registered = REGISTERED.load(Ordering::Acquire);
    while !at.is_null() {
        // SAFETY: entries are leaked, linked before they are published, and never freed.
        let entry = unsafe { &*at };
        all.push(entry.linked);
        at = entry.next;
    }
    all.reverse();
    all
}

/// What is built in or registered, plugins left out.
pub(crate) fn without_plugins() -> impl Iterator<Item = Linked> {
    BUILT_IN.iter().copied().chain(registered())
}

/// Everything that can be chosen, the most preferred first: the vendors' kinds in [`Kind::KNOWN`]'s order with
/// private kinds, registered ones and plugins, before `opencl`, then `host` and `sim`.
pub(crate) fn all() -> Vec<Linked> {
    let mut all: Vec<Linked> = without_plugins().chain(plugins::chosen().map(Linked::of_plugin)).collect();
    all.sort_by_key(|linked| rank(linked.kind));
    all
}

fn rank(kind: Kind) -> usize {
    let opencl = 2 * Kind::KNOWN.iter().position(|&known| known == Kind::OPENCL).unwrap_or(0);
    Kind::KNOWN.iter().position(|&known| known == kind).map_or(opencl - 1, |at| 2 * at)
}

/// Whether a kind is chosen without being named.
pub(crate) fn by_itself(kind: Kind) -> bool {
    kind != Kind::HOST && kind != Kind::SIM
}

/// The kinds that can be chosen, in order.
pub(crate) fn kinds() -> Vec<Kind> {
    all().into_iter().map(|linked| linked.kind).collect()
}

/// A private kind that somebody's own runtime has. Leaked, as entries of `REGISTERED` are.
struct Named {
    kind: Kind,
    next: *const Named,
}

static NAMED: AtomicPtr<Named> = AtomicPtr::new(ptr::null_mut());

fn named() -> impl Iterator<Item = Kind> {
    // SAFETY: null, or an entry: leaked, linked before it was published, and never freed.
    let entry = |at: *const Named| unsafe { at.as_ref() };
    std::iter::successors(entry(NAMED.load(Ordering::Acquire)), move |named| entry(named.next)).map(|named| named.kind)
}

/// Makes a kind's name known from now on, so that `npu:0` can be parsed.
pub(crate) fn name(kind: Kind) {
    if named_kinds().contains(&kind) {
        return;
    }
    let entry = Box::into_raw(Box::new(Named { kind, next: ptr::null() }));
    let mut head = NAMED.load(Ordering::Acquire);
    loop {
        // SAFETY: made above and not yet shared, so writing through it is exclusive.
        unsafe { (*entry).next = head };
        // Twice in the list, by two threads at once, is as good as once.
        match NAMED.compare_exchange_weak(head, entry, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

/// The kinds that a device string may begin with: those with names of their own, the registered ones, plugins, and those of
/// drivers that runtimes were built with.
pub(crate) fn named_kinds() -> Vec<Kind> {
    let mut kinds: Vec<Kind> = vec![Kind::CPU];
    kinds.extend(Kind::KNOWN.into_iter().filter(|&kind| kind != Kind::CPU && kind != Kind::META));
    let private = registered().into_iter().map(|linked| linked.kind).chain(plugins::known().map(Plugin::kind));
    for kind in private.chain(named()) {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds.push(Kind::META);
    kinds
}

/// The kind with that name.
pub(crate) fn kind_named(name: &str) -> Option<Kind> {
    named_kinds().into_iter().find(|kind| kind.name() == name)
}

/// Adds a backend of another crate to those that the process-wide runtime chooses from. Starts nothing.
///
/// Register before the first call that asks for devices, best first thing in `main`.
///
/// # Errors
/// [`Error::Registration`] if the kind is there already, is no accelerator (`cpu`, `meta`), or the process-wide runtime
/// exists.
pub fn register_backend(kind: Kind, construct: Constructor) -> Result<()> {
    let refuse = |reason| Err(Error::Registration { kind, reason });
    if kind == Kind::CPU || kind == Kind::META {
        return refuse("it is no accelerator");
    }
    if kinds().contains(&kind) {
        return refuse("a backend of that kind is there already");
    }
    if !fork::ROOT.load(Ordering::Acquire).is_null() {
        return refuse("the process-wide runtime has been used already");
    }
    let entry: *mut Registered =
        Box::leak(Box::new(Registered { linked: Linked::new(kind, construct), next: ptr::null() }));
    let mut head = REGISTERED.load(Ordering::Acquire);
    loop {
        // SAFETY: leaked just now and not yet shared, so writing through it is exclusive.
        unsafe { (*entry).next = head };
        match REGISTERED.compare_exchange_weak(head, entry, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Ok(()),
            Err(now) => head = now,
        }
    }
}
