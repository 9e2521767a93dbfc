//! Vendors' plugins: those that the environment names, and those that the program loads.
//!
//! # Protocol
//!
//! No lock, since a child of a fork comes here before it starts anything (H24).
//!
//! - `ENVIRONMENT` is null until a thread has read `ANYACCEL_PLUGINS` and loaded what it names; then what became of it, for
//!   good. Threads that come at the same time do the same work, which gives the same plugins, and the first one's result is
//!   kept. A child of a fork in between does it once more for itself.
//! - `USED` is a list that grows at its head. Whoever adds to it looks for the name in all of it, and looks again if the head
//!   moved meanwhile: so of two plugins with one name the second is refused.
//! - Nothing is freed. Libraries are never unloaded.

use crate::error::{Error, Result};
use crate::{env, fork, linked};
use anyaccel_abi::{LoadError, Plugin, Refusal};
use anyaccel_hal::Kind;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// What became of a plugin.
#[derive(Clone, Debug, PartialEq)]
pub struct PluginReport {
    /// The library.
    pub path: PathBuf,
    /// Whether `ANYACCEL_PLUGINS` names it; else the program loaded it.
    pub from_environment: bool,
    /// Its kind, or why it is none.
    pub outcome: Result<Kind, LoadError>,
}

/// What the environment named: each path, and what it is.
type Named = Vec<(PathBuf, Result<Plugin, LoadError>)>;

static ENVIRONMENT: AtomicPtr<Named> = AtomicPtr::new(ptr::null_mut());

/// A plugin that the program loaded.
struct Used {
    plugin: Plugin,
    /// Whether the process-wide runtime chooses from it.
    chosen: AtomicBool,
    next: *const Used,
}

static USED: AtomicPtr<Used> = AtomicPtr::new(ptr::null_mut());

/// What the environment names, loaded by the first call.
fn environment() -> &'static Named {
    // SAFETY: null, or a list that was leaked when it was published.
    if let Some(named) = unsafe { ENVIRONMENT.load(Ordering::Acquire).as_ref() } {
        return named;
    }
    let mut named = Named::new();
    for path in env::paths(env::PLUGINS) {
        let accepted = || named.iter().filter_map(|(_, outcome)| outcome.as_ref().ok().copied());
        let outcome = Plugin::load(&path).and_then(|plugin| match holder(plugin, accepted()) {
            None => Ok(plugin),
            Some(reason) => Err(LoadError::new(&path, reason)),
        });
        named.push((path, outcome));
    }
    let ours = Box::into_raw(Box::new(named));
    match ENVIRONMENT.compare_exchange(ptr::null_mut(), ours, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: published just now, and never freed.
        Ok(_) => unsafe { &*ours },
        Err(first) => {
            // SAFETY: ours was not published; the first one was, and is never freed.
            unsafe {
                drop(Box::from_raw(ours));
                &*first
            }
        }
    }
}

fn used(head: *const Used) -> impl Iterator<Item = &'static Used> {
    // SAFETY: null, or an entry: leaked, linked before it was published, and never freed.
    let entry = |at: *const Used| unsafe { at.as_ref() };
    std::iter::successors(entry(head), move |used| entry(used.next))
}

fn accepted() -> impl Iterator<Item = Plugin> {
    environment().iter().filter_map(|(_, outcome)| outcome.as_ref().ok().copied())
}

/// Every plugin of this process, whoever uses it: its kind can be named.
pub(crate) fn known() -> impl Iterator<Item = Plugin> {
    accepted().chain(used(USED.load(Ordering::Acquire)).map(|used| used.plugin))
}

/// Those that the process-wide runtime chooses from.
pub(crate) fn chosen() -> impl Iterator<Item = Plugin> {
    let list = used(USED.load(Ordering::Acquire)).filter(|used| used.chosen.load(Ordering::Acquire));
    let mut loaded: Vec<Plugin> = list.map(|used| used.plugin).collect();
    loaded.reverse();
    accepted().chain(loaded)
}

/// Those that the environment names and that are none.
pub(crate) fn refused() -> Vec<LoadError> {
    environment().iter().filter_map(|(_, outcome)| outcome.as_ref().err().cloned()).collect()
}

/// Why a plugin can't be one more beside those: it is one of them, or its name is taken.
fn holder(plugin: Plugin, others: impl Iterator<Item = Plugin>) -> Option<Refusal> {
    let kind = plugin.kind();
    for other in others {
        if same_file(other.path(), plugin.path()) {
            return Some(Refusal::Twice { kind });
        }
        if other.kind() == kind {
            return Some(Refusal::KindTaken { kind, holder: other.path().display().to_string() });
        }
    }
    let linked = linked::without_plugins().any(|linked| linked.kind == kind);
    linked.then(|| Refusal::KindTaken { kind, holder: "a backend of this program".into() })
}

/// Whether two paths lead to one file.
fn same_file(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    one == other || real(one).is_some_and(|one| Some(one) == real(other))
}

/// The plugin at that path for a runtime of its own: loaded, and its name from now on known. One that is known already is
/// used again.
pub(crate) fn used_by_builder(path: &Path) -> Result<Plugin> {
    let plugin = Plugin::load(path)?;
    if let Some(known) = known().find(|known| same_file(known.path(), path)) {
        return Ok(known);
    }
    add(plugin, false)?;
    Ok(plugin)
}

/// Adds a plugin to the list.
fn add(plugin: Plugin, chosen: bool) -> Result<(), LoadError> {
    let entry = Box::into_raw(Box::new(Used { plugin, chosen: AtomicBool::new(chosen), next: ptr::null() }));
    let mut head = USED.load(Ordering::Acquire);
    loop {
        let others = accepted().chain(used(head).map(|used| used.plugin));
        if let Some(reason) = holder(plugin, others) {
            // SAFETY: made above and not published.
            drop(unsafe { Box::from_raw(entry) });
            return Err(LoadError::new(plugin.path(), reason));
        }
        // SAFETY: made above and not yet shared, so writing through it is exclusive.
        unsafe { (*entry).next = head };
        match USED.compare_exchange_weak(head, entry, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Ok(()),
            Err(now) => head = now,
        }
    }
}

/// Loads a vendor's plugin by its absolute path, and adds it to those that the process-wide runtime chooses from. Starts
/// nothing. From now on its kind can be named: `npu:0`.
///
/// Load before the first call that asks for devices, best first thing in `main`. The library stays loaded.
///
/// # Errors
/// [`Error::Plugin`] if it is none, if it is loaded already, or if its name is taken; [`Error::Registration`] if the
/// process-wide runtime exists.
pub fn load_plugin(path: impl AsRef<Path>) -> Result<Kind> {
    let path = path.as_ref();
    let plugin = Plugin::load(path)?;
    let kind = plugin.kind();
    if !fork::ROOT.load(Ordering::Acquire).is_null() {
        return Err(Error::Registration { kind, reason: "the process-wide runtime has been used already" });
    }
    let known = used(USED.load(Ordering::Acquire)).find(|used| same_file(used.plugin.path(), path));
    match known {
        // A runtime of its own uses it so far.
        Some(used) if !used.chosen.swap(true, Ordering::AcqRel) => Ok(kind),
        Some(_) => Err(LoadError::new(path, Refusal::Twice { kind }).into()),
        None => {
            add(plugin, true)?;
            Ok(kind)
        }
    }
}

/// What became of each plugin that the environment names, in its order, and then of each that the program loaded. Starts
/// nothing.
pub fn plugins() -> Vec<PluginReport> {
    let named = environment().iter().map(|(path, outcome)| PluginReport {
        path: path.clone(),
        from_environment: true,
        outcome: outcome.clone().map(Plugin::kind),
    });
    let mut loaded: Vec<PluginReport> = used(USED.load(Ordering::Acquire))
        .map(|used| PluginReport {
            path: used.plugin.path().to_owned(),
            from_environment: false,
            outcome: Ok(used.plugin.kind()),
        })
        .collect();
    loaded.reverse();
    named.chain(loaded).collect()
}
