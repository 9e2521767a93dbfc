//! Scopes: what a thread is at, in its program's own words.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

thread_local! {
    static SCOPE: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
}

/// What this thread's scopes are called, the outermost first, parted by `/`; `None` outside all.
#[inline]
pub fn scope() -> Option<Arc<str>> {
    SCOPE.try_with(|scope| scope.borrow().clone()).unwrap_or(None)
}

/// Leaves its scope when dropped: the thread is again where it was before.
#[derive(Debug)]
#[must_use = "the scope lasts while the guard lives"]
pub struct ScopeGuard {
    before: Option<Arc<str>>,
    /// The scope is a thread's own.
    _not_send: PhantomData<*const ()>,
}

/// Events that this thread causes bear `name` until the guard is dropped, behind the names of the scopes around it.
pub fn enter_scope(name: &str) -> ScopeGuard {
    let swap = |scope: &RefCell<Option<Arc<str>>>| {
        let mut scope = scope.borrow_mut();
        let inner: Arc<str> = match &*scope {
            Some(outer) => format!("{outer}/{name}").into(),
            None => name.into(),
        };
        scope.replace(inner)
    };
    // A thread that is ending has no scopes any more.
    let before = SCOPE.try_with(swap).unwrap_or(None);
    ScopeGuard { before, _not_send: PhantomData }
}

impl Drop for ScopeGuard {
    fn drop(&mut self) {
        let _thread_ends = SCOPE.try_with(|scope| *scope.borrow_mut() = self.before.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_nest_and_end() {
        assert_eq!(scope(), None);
        let outer = enter_scope("step 3");
        {
            let _inner = enter_scope("forward");
            assert_eq!(scope().as_deref(), Some("step 3/forward"));
            std::thread::spawn(|| assert_eq!(scope(), None)).join().unwrap();
        }
        assert_eq!(scope().as_deref(), Some("step 3"));
        drop(outer);
        assert_eq!(scope(), None);
    }
}
