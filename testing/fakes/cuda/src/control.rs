//! What tests do to a fake that is loaded: lose a card, heal it, make calls fail.

use crate::call::lock;
use crate::config::config;
use crate::schedule;
use anyaccel_cuda::sys::{CUDA_ERROR_ILLEGAL_ADDRESS, Code};
use std::ffi::{CStr, c_char};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Failures ordered at run time: name, how many calls are still good, code.
static ORDERED: Mutex<Vec<(String, u32, Code)>> = Mutex::new(Vec::new());
static ANY: AtomicBool = AtomicBool::new(false);

/// The code that this call is to fail with, if it is its turn. Codes from 700 on lose the current card as well.
pub(crate) fn injected(name: &str) -> Option<Code> {
    let mut code = None;
    for failure in config().failures.iter().filter(|failure| failure.name == name) {
        let before = failure.after.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| Some(left.wrapping_sub(1)));
        if before == Ok(0) {
            code = Some(failure.code);
        }
    }
    if ANY.load(Ordering::Relaxed) {
        let mut ordered = lock(&ORDERED);
        if let Some(at) = ordered.iter().position(|(ordered, ..)| ordered == name) {
            if ordered[at].1 == 0 {
                code = Some(ordered.remove(at).2);
            } else {
                ordered[at].1 -= 1;
            }
        }
    }
    if let Some(code @ 700..800) = code
        && let Ok(context) = crate::context::current_even_if_lost()
    {
        schedule::lose(context.card, code);
    }
    code
}

/// Makes the n-th call of that name from now on (1 is the next) fail with a code.
///
/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported by its name")]
pub unsafe extern "C" fn anyaccel_fake_cuda_fail(name: *const c_char, nth: u32, code: u32) {
    // SAFETY: this function's contract.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    lock(&ORDERED).push((name, nth.saturating_sub(1), code));
    ANY.store(true, Ordering::SeqCst);
}

/// Loses the card at that place of the bus, as by an illegal access.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported by its name")]
pub extern "C" fn anyaccel_fake_cuda_lose(place: u32) {
    if let Some(card) = config().cards.get(place as usize) {
        schedule::lose(card, CUDA_ERROR_ILLEGAL_ADDRESS);
    }
}

/// Makes all cards work again and forgets ordered failures. The real driver needs a new process for that.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported by its name")]
pub extern "C" fn anyaccel_fake_cuda_heal() {
    lock(&ORDERED).clear();
    ANY.store(false, Ordering::SeqCst);
    for card in &config().cards {
        schedule::heal(card);
    }
}
