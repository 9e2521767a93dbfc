//! What every function of the interface does first: the log, the fork, and failures by order; and what many do with
//! handles, pointers and lists.

use crate::abi::{
    Code, Handle, ZE_RESULT_ERROR_INVALID_ARGUMENT, ZE_RESULT_ERROR_INVALID_NULL_HANDLE,
    ZE_RESULT_ERROR_INVALID_NULL_POINTER, ZE_RESULT_ERROR_UNINITIALIZED, ZE_RESULT_SUCCESS,
};
use crate::config::config;
use std::collections::BTreeMap;
use std::ffi::c_char;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The outcome of a call.
pub(crate) type Result<T = ()> = std::result::Result<T, Code>;

/// `zeInit` has succeeded in this process or an ancestor.
static INITIALISED: AtomicBool = AtomicBool::new(false);
/// This is a child of a process that had initialised.
static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn in_child() {
    if INITIALISED.load(Ordering::Relaxed) {
        FORKED.store(true, Ordering::Relaxed);
    }
}

/// Notes that the runtime runs.
pub(crate) fn initialise() {
    if !INITIALISED.swap(true, Ordering::SeqCst) {
        // SAFETY: the handler only stores atomics.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
}

/// Whether the runtime runs, or ran in an ancestor.
pub(crate) fn initialised() -> bool {
    INITIALISED.load(Ordering::Acquire)
}

/// Runs the body of a function.
pub(crate) fn call(name: &'static str, body: impl FnOnce() -> Result) -> Code {
    let config = config();
    if let Some(mut log) = config.log.as_ref() {
        // One write a line, so that processes can share the file. A full disk shows in the test that reads it.
        let _written = log.write_all(format!("{name}\n").as_bytes());
    }
    // Sysman reads what the system says of its devices: it needs no runtime, and outlives a fork.
    let runtime = !name.starts_with("zes") && !name.ends_with("ProcAddrTable");
    if runtime && FORKED.load(Ordering::Relaxed) {
        return ZE_RESULT_ERROR_UNINITIALIZED;
    }
    if runtime && !name.starts_with("zeInit") && !initialised() {
        return ZE_RESULT_ERROR_UNINITIALIZED;
    }
    if let Some(code) = config.failures.turn(name) {
        return code;
    }
    match body() {
        Ok(()) => ZE_RESULT_SUCCESS,
        Err(code) => code,
    }
}

/// Writes a result where the caller wants it.
///
/// # Safety
/// `out` is null or valid for a write, as the interface asks.
pub(crate) unsafe fn put<T>(out: *mut T, value: T) -> Result {
    if out.is_null() {
        return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    }
    // SAFETY: not null, and valid by this function's contract.
    unsafe { out.write(value) };
    Ok(())
}

/// What a pointer to a description leads to.
///
/// # Safety
/// `at` is null or valid for reads while the call runs, as the interface asks.
pub(crate) unsafe fn get<'a, T>(at: *const T) -> Result<&'a T> {
    // SAFETY: this function's contract.
    unsafe { at.as_ref() }.ok_or(ZE_RESULT_ERROR_INVALID_NULL_POINTER)
}

/// Properties that the caller made, with what it wrote into the header; the body fills in the rest.
///
/// # Safety
/// `at` is null or valid for reads and writes while the call runs, as the interface asks.
pub(crate) unsafe fn fill<'a, T>(at: *mut T) -> Result<&'a mut T> {
    // SAFETY: this function's contract.
    unsafe { at.as_mut() }.ok_or(ZE_RESULT_ERROR_INVALID_NULL_POINTER)
}

/// A list as the interface gives them: asked with a count of zero it says how many there are, else it writes as many as
/// there is room for, and how many it wrote.
///
/// # Safety
/// `count` is null or valid; `out` is null or has room for that many.
pub(crate) unsafe fn list<T>(
    count: *mut u32,
    out: *mut T,
    items: impl ExactSizeIterator<Item = T>,
    mut write: impl FnMut(&mut T, T),
) -> Result {
    // SAFETY: this function's contract.
    let room = unsafe { fill(count) }?;
    let there = items.len() as u32;
    let asked = *room == 0;
    if asked || *room > there {
        *room = there;
    }
    if asked || out.is_null() {
        return Ok(());
    }
    for (at, item) in items.take(*room as usize).enumerate() {
        // SAFETY: there is room for `room` of them.
        write(unsafe { &mut *out.add(at) }, item);
    }
    Ok(())
}

/// An array of the caller's.
///
/// # Safety
/// `at` is null or has that many, valid while the call runs.
pub(crate) unsafe fn array<'a, T>(at: *const T, count: u32) -> Result<&'a [T]> {
    match (count, at.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER),
        // SAFETY: this function's contract.
        _ => Ok(unsafe { std::slice::from_raw_parts(at, count as usize) }),
    }
}

/// A text in a field, cut to the room there is, and zeros behind it.
pub(crate) fn text<const N: usize>(text: &str) -> [c_char; N] {
    let mut field = [0; N];
    for (to, from) in field[..N - 1].iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
    field
}

/// A text the way the interface gives them: its size with the zero, then, where there is room, its bytes.
///
/// # Safety
/// `size` is null or valid; `out` is null or has room for that many bytes.
pub(crate) unsafe fn put_text(size: *mut usize, out: *mut c_char, text: &str) -> Result {
    // SAFETY: this function's contract.
    let room = unsafe { fill(size) }?;
    if !out.is_null() {
        let len = text.len().min(room.saturating_sub(1));
        if *room > 0 {
            // SAFETY: `len + 1` is at most the room there is.
            unsafe {
                std::ptr::copy_nonoverlapping(text.as_ptr().cast(), out, len);
                out.add(len).write(0);
            }
        }
    }
    *room = text.len() + 1;
    Ok(())
}

/// Locks; nothing here panics while it holds one.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The live objects of a kind.
pub(crate) struct Registry<T> {
    objects: Mutex<BTreeMap<Handle, Arc<T>>>,
    next: AtomicUsize,
}

impl<T> Registry<T> {
    /// Handles of different kinds begin at different numbers, so that none is taken for another.
    pub(crate) const fn new(first: Handle) -> Self {
        Self { objects: Mutex::new(BTreeMap::new()), next: AtomicUsize::new(first) }
    }

    pub(crate) fn add(&self, object: T) -> Handle {
        self.add_with(|_| object).0
    }

    /// Adds an object that knows its handle.
    pub(crate) fn add_with(&self, make: impl FnOnce(Handle) -> T) -> (Handle, Arc<T>) {
        let handle = self.next.fetch_add(16, Ordering::Relaxed);
        let object = Arc::new(make(handle));
        lock(&self.objects).insert(handle, Arc::clone(&object));
        (handle, object)
    }

    pub(crate) fn get(&self, handle: Handle) -> Result<Arc<T>> {
        if handle == 0 {
            return Err(ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
        }
        lock(&self.objects).get(&handle).cloned().ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)
    }

    /// Removes an object that may go.
    pub(crate) fn remove(&self, handle: Handle, may_go: impl FnOnce(&T) -> Result) -> Result<Arc<T>> {
        let object = self.get(handle)?;
        may_go(&object)?;
        lock(&self.objects).remove(&handle).ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)
    }
}

/// Functions of the interface: what they export under their names is what the loader finds in the tables too.
macro_rules! exports {
    ($(fn $name:ident($($arg:ident : $type:ty),* $(,)?) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        #[allow(unreachable_pub, reason = "exported by its name")]
        #[allow(non_snake_case, missing_docs, clippy::missing_safety_doc, reason = "the interface's own")]
        #[allow(clippy::too_many_arguments, reason = "the interface's own")]
        pub unsafe extern "system" fn $name($($arg: $type),*) -> $crate::abi::Code {
            #[allow(unused_unsafe, reason = "some bodies have nothing to be careful with")]
            // SAFETY: callers keep what the interface's documentation asks: pointers are null or valid for their use.
            $crate::call::call(stringify!($name), || -> $crate::call::Result { unsafe { $body } })
        }
    )*};
}
pub(crate) use exports;
