//! What tests do to a fake that is loaded: lose a card, heal it, make calls fail.

use crate::abi::{Code, ZE_RESULT_ERROR_DEVICE_LOST};
use crate::call::lock;
use crate::config::{Card, config};
use crate::lane;
use std::ffi::{CStr, c_char};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Failures ordered at run time: name, how many calls are still good, code.
static ORDERED: Mutex<Vec<(String, u32, Code)>> = Mutex::new(Vec::new());
static ANY: AtomicBool = AtomicBool::new(false);

/// The code that this call is to fail with, if it is its turn.
pub(crate) fn injected(name: &str) -> Option<Code> {
    let mut code = None;
    for failure in config().failures.iter().filter(|failure| failure.name == name || failure.name == "*") {
        let turn = failure.after.as_ref().is_none_or(|after| {
            let step = |left: u32| Some(left.wrapping_sub(1));
            after.fetch_update(Ordering::SeqCst, Ordering::SeqCst, step) == Ok(0)
        });
        if turn {
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
    code
}

/// Fails if the card is lost.
pub(crate) fn alive(card: &Card) -> crate::call::Result {
    if card.lost.load(Ordering::Acquire) { Err(ZE_RESULT_ERROR_DEVICE_LOST) } else { Ok(()) }
}

/// Makes the n-th call of that name from now on (1 is the next) fail with a code.
///
/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported by its name")]
pub unsafe extern "C" fn anyaccel_fake_ze_fail(name: *const c_char, nth: u32, code: u32) {
    // SAFETY: this function's contract.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    lock(&ORDERED).push((name, nth.saturating_sub(1), code));
    ANY.store(true, Ordering::SeqCst);
}

/// Loses the card at that place of the bus, as by an illegal access.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported by its name")]
pub extern "C" fn anyaccel_fake_ze_lose(place: u32) {
    if let Some(card) = config().cards.get(place as usize) {
        lane::lose(card);
    }
}

/// Makes all cards work again and forgets ordered failures. Real ones need a reset, and a new process.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported by its name")]
pub extern "C" fn anyaccel_fake_ze_heal() {
    lock(&ORDERED).clear();
    ANY.store(false, Ordering::SeqCst);
    for card in &config().cards {
        lane::heal(card);
    }
}
