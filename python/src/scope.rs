//! Scopes that Python enters and leaves: the guards of the runtime, kept on the thread that entered.
//!
//! A guard belongs to its thread, and a Python object may be entered by several threads and several times by each. So
//! guards lie in a list of the thread, under the number of the object that was entered; leaving takes the last of that
//! number. A scope that no thread leaves (an abandoned generator) ends with its thread.

use anyaccel::random::RngGuard;
use anyaccel::{DeviceIndexGuard, MemPool, MemPoolGuard, MemoryAnnotation, StreamGuard};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A guard under whatever name it has.
pub(crate) enum Scope {
    Device { _guard: DeviceIndexGuard },
    Stream { _guard: StreamGuard },
    Rng { _guard: RngGuard },
    Annotation { _guard: MemoryAnnotation },
    // The guard borrows the pool: it is declared, and so dropped, first.
    Pool { _guard: MemPoolGuard<'static>, _pool: Arc<MemPool> },
}

impl Scope {
    /// Enters a pool.
    pub(crate) fn pool(pool: &Arc<MemPool>) -> anyaccel::Result<Self> {
        let pool = Arc::clone(pool);
        let guard = pool.enter()?;
        // SAFETY: the guard borrows the pool, whose heap allocation stays where it is while the Arc lives; the Arc is in
        // the same variant and dropped after the guard, and neither leaves the variant.
        let guard = unsafe { std::mem::transmute::<MemPoolGuard<'_>, MemPoolGuard<'static>>(guard) };
        Ok(Self::Pool { _guard: guard, _pool: pool })
    }
}

thread_local! {
    static SCOPES: RefCell<Vec<(u64, Scope)>> = const { RefCell::new(Vec::new()) };
}

/// A number for an object that can be entered.
pub(crate) fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Keeps a guard until the object of that number is left on this thread.
#[inline]
pub(crate) fn enter(number: u64, scope: Scope) {
    let mut scope = Some(scope);
    let _thread_ends = SCOPES.try_with(|scopes| {
        if let Some(scope) = scope.take() {
            scopes.borrow_mut().push((number, scope));
        }
    });
}

/// Drops the last guard of that number on this thread. Whether there was one.
#[inline]
pub(crate) fn leave(number: u64) -> bool {
    let taken = SCOPES.try_with(|scopes| {
        let mut scopes = scopes.borrow_mut();
        let at = scopes.iter().rposition(|(known, _)| *known == number)?;
        Some(scopes.remove(at))
    });
    // Dropped without the borrow.
    matches!(taken, Ok(Some(_)))
}
