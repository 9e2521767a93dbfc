//! Many threads on one fake, for the tools that look for races.

use crate::abi::*;
use crate::control::{anyaccel_fake_ze_heal, anyaccel_fake_ze_lose};
use crate::driver_calls::*;
use crate::event::*;
use crate::list_calls::*;
use crate::memory_calls::*;
use std::ffi::c_void;
use std::ptr;
use std::thread;

const LEN: usize = 4096;
const ROUNDS: u32 = 40;

/// A device of the fake, with what a thread needs there.
struct Bench {
    context: Handle,
    lists: [Handle; 2],
    events: [Handle; 2],
    memory: *mut c_void,
    host: *mut c_void,
}

fn good(code: Code) {
    assert_eq!(code, ZE_RESULT_SUCCESS);
}

/// A description with that number as its flags, for all that begin with a kind, a chain and flags.
#[repr(C)]
struct Flags(u32, *const c_void, u32, u32);

impl Bench {
    fn new(context: Handle, device: Handle) -> Self {
        let plain = Flags(0, ptr::null(), 0, 0);
        let queue = ze_command_queue_desc_t {
            stype: 0,
            pNext: ptr::null(),
            ordinal: 0,
            index: 0,
            flags: ZE_COMMAND_QUEUE_FLAG_IN_ORDER,
            mode: ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS,
            priority: 0,
        };
        let pool_desc =
            ze_event_pool_desc_t { stype: 0, pNext: ptr::null(), flags: ZE_EVENT_POOL_FLAG_HOST_VISIBLE, count: 2 };
        let (mut lists, mut events, mut pool) = ([0; 2], [0; 2], 0);
        let (mut memory, mut host) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: descriptions and places for answers that live; `Flags` begins as the descriptions it stands for.
        unsafe {
            good(zeEventPoolCreate(context, &raw const pool_desc, 0, ptr::null(), &raw mut pool));
            for (at, event) in events.iter_mut().enumerate() {
                let desc = ze_event_desc_t { stype: 0, pNext: ptr::null(), index: at as u32, signal: 0, wait: 0 };
                good(zeEventCreate(pool, &raw const desc, event));
            }
            for list in &mut lists {
                good(zeCommandListCreateImmediate(context, device, &raw const queue, list));
            }
            let plain = &raw const plain;
            good(zeMemAllocDevice(context, plain.cast(), LEN, 0, device, &raw mut memory));
            good(zeMemAllocHost(context, plain.cast(), LEN, 0, &raw mut host));
        }
        Self { context, lists, events, memory, host }
    }

    /// Fills on one list, copies to the host on the other behind it, and waits so many nanoseconds; the code of the first call that fails.
    fn round(&self, byte: u8, patience: u64) -> Code {
        let Self { lists: [first, second], events: [filled, copied], memory, host, .. } = *self;
        // SAFETY: memory and handles that live; nobody else uses them.
        unsafe {
            let calls: [&dyn Fn() -> Code; 5] = [
                &|| {
                    let pattern = (&raw const byte).cast();
                    zeCommandListAppendMemoryFill(first, memory, pattern, 1, LEN, filled, 0, ptr::null())
                },
                &|| zeCommandListAppendMemoryCopy(second, host, memory, LEN, copied, 1, &raw const filled),
                &|| zeEventHostSynchronize(copied, patience),
                &|| zeEventHostReset(filled),
                &|| zeEventHostReset(copied),
            ];
            calls.iter().map(|call| call()).find(|&code| code != ZE_RESULT_SUCCESS).unwrap_or(ZE_RESULT_SUCCESS)
        }
    }

    fn end(self) {
        // SAFETY: nothing uses them any more, or they say so.
        unsafe {
            for list in self.lists {
                good(zeCommandListDestroy(list));
            }
            for event in self.events {
                good(zeEventDestroy(event));
            }
            good(zeMemFree(self.context, self.memory));
            good(zeMemFree(self.context, self.host));
        }
    }
}

#[test]
fn threads_get_on_with_each_other() {
    let (mut context, mut devices, mut count) = (0, [0; 2], 2);
    // SAFETY: places for answers that live.
    unsafe {
        good(zeInit(0));
        good(crate::device_calls::zeDeviceGet(crate::device::DRIVER, &raw mut count, devices.as_mut_ptr()));
        let desc = ze_context_desc_t { stype: 0, pNext: ptr::null(), flags: 0 };
        good(zeContextCreate(crate::device::DRIVER, &raw const desc, &raw mut context));
    }
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let bench = Bench::new(context, devices[0]);
                for round in 0..ROUNDS {
                    good(bench.round(round as u8, FOREVER));
                    // SAFETY: the copy has ended.
                    let seen = unsafe { bench.host.cast::<u8>().add(LEN - 1).read() };
                    assert_eq!(seen, round as u8);
                }
                bench.end();
            });
        }
        let unlucky = Bench::new(context, devices[1]);
        let breaker = scope.spawn(|| {
            for _ in 0..ROUNDS {
                anyaccel_fake_ze_lose(1);
                anyaccel_fake_ze_heal();
            }
        });
        while !breaker.is_finished() {
            let code = unlucky.round(1, 1_000_000);
            let expected = [ZE_RESULT_SUCCESS, ZE_RESULT_NOT_READY, ZE_RESULT_ERROR_DEVICE_LOST];
            assert!(expected.contains(&code), "{code:x}");
            // Where the fill was dropped and the copy was not, it waits for an event that only the host still sets.
            let [filled, copied] = unlucky.events;
            // SAFETY: handles that live.
            unsafe {
                good(zeEventHostSignal(filled));
                let ended = zeCommandListHostSynchronize(unlucky.lists[1], FOREVER);
                assert!(expected.contains(&ended), "{ended:x}");
                let ended = zeCommandListHostSynchronize(unlucky.lists[0], FOREVER);
                assert!(expected.contains(&ended), "{ended:x}");
                good(zeEventHostReset(filled));
                good(zeEventHostReset(copied));
            }
        }
        good(unlucky.round(2, FOREVER));
        unlucky.end();
    });
}
