//! Plugins, from a file to a driver.
//!
//! # Protocol
//!
//! A plugin that was accepted is leaked and listed in `LOADED`, a list that only grows at its head by an exchange of one
//! pointer. So there is no lock here: a child of a fork finds a plugin listed or not, never in between (H24), and two
//! threads that load the same one at the same time find the same tables, since a library is mapped once.

mod capability;
mod check;
mod device;
mod driver;
mod error;
mod graphs;
mod library;
mod maps;

pub use error::{LoadError, Refusal};

use crate::raw;
use anyaccel_hal::{Driver, Kind};
use check::Tables;
use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A plugin that was accepted, for the process's life.
pub(crate) struct Loaded {
    /// What its entry returned: the same for the same library.
    raw: *const raw::Plugin,
    path: PathBuf,
    pub(crate) tables: Tables,
    next: *const Loaded,
}

static LOADED: AtomicPtr<Loaded> = AtomicPtr::new(ptr::null_mut());

fn loaded() -> impl Iterator<Item = &'static Loaded> {
    // SAFETY: null, or an entry: leaked, linked before it was published, and never freed.
    let entry = |at: *const Loaded| unsafe { at.as_ref() };
    std::iter::successors(entry(LOADED.load(Ordering::Acquire)), move |loaded| entry(loaded.next))
}

/// A vendor's library, loaded and examined. It stays loaded as long as the process lives.
#[derive(Clone, Copy)]
pub struct Plugin {
    loaded: &'static Loaded,
}

// SAFETY: entries of the list are constant once published, but for nothing; their tables may be used by any thread (H18).
unsafe impl Send for Plugin {}
// SAFETY: as above.
unsafe impl Sync for Plugin {}

impl Plugin {
    /// Loads a plugin by its absolute path. Starts nothing; the same file gives the same plugin again.
    ///
    /// # Errors
    /// Why it is none, in one line.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, LoadError> {
        let path = path.as_ref();
        let entry = library::entry(path).map_err(|reason| LoadError::new(path, reason))?;
        let host = raw::Host {
            struct_size: size_of::<raw::Host>() as u32,
            abi_major: raw::ABI_MAJOR,
            abi_minor: raw::ABI_MINOR,
            reserved: 0,
        };
        // SAFETY: the library exports it under its name; it takes a host that is valid for the call, and does not unwind.
        let plugin = unsafe { entry(&raw const host) };
        // SAFETY: the header promises that what the entry returns is constant.
        unsafe { Self::accept(plugin, path) }
    }

    /// A plugin that is part of this process: what its entry returned.
    ///
    /// # Errors
    /// As for [`Plugin::load`]; its path reads `<linked>`.
    ///
    /// # Safety
    /// It is what the header asks of `anyaccel_plugin_entry`. Memory that a pointer in it does not own, or that is no code, is
    /// noticed where the system tells; what its functions do is not.
    pub unsafe fn linked(plugin: *const raw::Plugin) -> Result<Self, LoadError> {
        // SAFETY: as this function.
        unsafe { Self::accept(plugin, Path::new("<linked>")) }
    }

    /// # Safety
    /// As for [`Plugin::linked`].
    unsafe fn accept(plugin: *const raw::Plugin, path: &Path) -> Result<Self, LoadError> {
        let known = |loaded: &&Loaded| ptr::eq(loaded.raw, plugin) && loaded.path == path;
        if let Some(loaded) = loaded().find(known) {
            return Ok(Self { loaded });
        }
        // SAFETY: as this function.
        let tables = unsafe { check::examine(plugin) }.map_err(|reason| LoadError::new(path, reason))?;
        let entry = Loaded { raw: plugin, path: path.to_owned(), tables, next: ptr::null() };
        let entry = Box::into_raw(Box::new(entry));
        let mut head = LOADED.load(Ordering::Acquire);
        loop {
            // SAFETY: made above and not yet shared, so writing through it is exclusive.
            unsafe { (*entry).next = head };
            match LOADED.compare_exchange_weak(head, entry, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: published just now and never freed.
                Ok(_) => return Ok(Self { loaded: unsafe { &*entry } }),
                Err(now) => head = now,
            }
        }
    }

    /// Where it was loaded from.
    pub fn path(self) -> &'static Path {
        &self.loaded.path
    }

    /// Its kind.
    pub fn kind(self) -> Kind {
        self.loaded.tables.kind
    }

    /// Its version, as its vendor writes it.
    pub fn version(self) -> Option<&'static str> {
        self.loaded.tables.version.as_deref()
    }

    /// The major and minor version of the ABI that it was built with.
    pub fn abi(self) -> (u32, u32) {
        self.loaded.tables.abi
    }

    /// Whether counting its devices starts nothing, whatever it finds (H22).
    pub fn fork_safe_probe(self) -> bool {
        self.loaded.tables.flags & raw::FORK_SAFE_PROBE != 0
    }

    /// Whether it works in a child that was forked after the parent had started it.
    pub fn restartable(self) -> bool {
        self.loaded.tables.flags & raw::RESTARTABLE != 0
    }

    /// A new driver. Starts nothing (H22, H24). A plugin that can't make one gives a driver without devices, which says
    /// why.
    pub fn driver(self) -> Arc<dyn Driver> {
        Arc::new(driver::PluginDriver::new(self))
    }

    pub(crate) fn tables(self) -> &'static Tables {
        &self.loaded.tables
    }
}

impl PartialEq for Plugin {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.loaded, other.loaded)
    }
}

impl Eq for Plugin {}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plugin").field("path", &self.path()).field("kind", &self.kind()).finish_non_exhaustive()
    }
}
