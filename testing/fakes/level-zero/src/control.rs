//! What tests do to a fake that is loaded: lose a card, heal it, make calls fail.

use crate::abi::ZE_RESULT_ERROR_DEVICE_LOST;
use crate::config::{Card, config};
use crate::lane;
use std::ffi::{CStr, c_char};
use std::sync::atomic::Ordering;

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
    config().failures.order(name, nth, code);
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
    config().failures.forget();
    for card in &config().cards {
        lane::heal(card);
    }
}
