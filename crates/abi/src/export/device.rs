//! The functions of an exported device.

use super::{Constant, capability, graphs, size};
use crate::convert;
use crate::fault::{answer_or_time_out, contained};
use crate::raw;
use crate::text;
use anyaccel_hal::{Device, Fault, Kernel, Launch, Mem, Pattern, Stamp, StreamId, Until, WaitMode, Waited};
use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a device's pointer points to.
struct Exported(Arc<dyn Device>);

/// A device for the host, until it closes it.
pub(super) fn exported(device: Arc<dyn Device>) -> *mut raw::Device {
    Box::into_raw(Box::new(Exported(device))).cast()
}

/// The device behind the host's pointer.
///
/// # Safety
/// From `exported`, and not closed.
#[inline]
pub(super) unsafe fn of<'a>(device: *mut raw::Device) -> &'a dyn Device {
    // SAFETY: as this function.
    unsafe { &*(*device.cast::<Exported>()).0 }
}

pub(super) unsafe extern "C" fn close(device: *mut raw::Device) {
    // SAFETY: from `exported`; the host closes it once.
    contained((), || drop(unsafe { Box::from_raw(device.cast::<Exported>()) }));
}

pub(super) static TABLE: Constant<raw::DeviceTable> = Constant(raw::DeviceTable {
    struct_size: size::<raw::DeviceTable>(),
    reserved: 0,
    info: Some(info),
    memory_info: Some(memory_info),
    alloc: Some(alloc),
    free: Some(free),
    import: Some(import),
    native_mem: Some(native_mem),
    create_stream: Some(create_stream),
    destroy_stream: Some(destroy_stream),
    native_stream: Some(native_stream),
    mark: Some(mark),
    wait: Some(wait),
    wait_host: Some(wait_host),
    completed: Some(completed),
    stamp: Some(stamp),
    elapsed_ns: Some(elapsed_ns),
    drop_stamp: Some(drop_stamp),
    copy: Some(copy),
    fill: Some(fill),
    write: Some(write),
    host_call: Some(host_call),
    builtin: Some(builtin),
    launch: Some(launch),
    pinned: &raw const capability::PINNED.0,
    peers: &raw const capability::PEERS.0,
    virtual_memory: &raw const capability::VIRTUAL_MEMORY.0,
    kernels: &raw const capability::KERNELS.0,
    gates: &raw const capability::GATES.0,
    graphs: &raw const graphs::TABLE.0,
    native_events: &raw const capability::NATIVE_EVENTS.0,
    telemetry: &raw const capability::TELEMETRY.0,
});

/// One function of a table: the body runs as the host's call, with its pointers valid and H1 to H15 promised.
macro_rules! answers {
    ($(fn $name:ident($device:ident $(, $arg:ident: $type:ty)*) $body:block)*) => {$(
        pub(super) unsafe extern "C" fn $name(
            $device: *mut $crate::raw::Device,
            $($arg: $type,)*
            fault: *mut $crate::raw::Fault,
        ) -> u32 {
            // SAFETY: what the host passed is valid for the call; what hal's method asks of its caller, the header asks of
            // the host (H1 to H15).
            unsafe {
                let $device = $crate::export::device::of($device);
                $crate::fault::answer(fault, || $body)
            }
        }
    )*};
}
pub(super) use answers;

answers! {
    fn info(device, info: *mut raw::DeviceInfo) {
        convert::put_info(info, device.info());
        Ok(())
    }

    fn memory_info(device, info: *mut raw::MemoryInfo) {
        let found = device.memory_info()?;
        (*info).free_known = found.free.is_some().into();
        (*info).free = found.free.unwrap_or(0);
        (*info).total = found.total;
        Ok(())
    }

    fn alloc(device, len: u64, segment: *mut raw::Segment) {
        segment.write(convert::segment(device.alloc(len)?));
        Ok(())
    }

    fn free(device, mem: u64) {
        device.free(Mem(mem))
    }

    fn import(device, native: u64, len: u64, segment: *mut raw::Segment) {
        segment.write(convert::segment(device.import(native, len)?));
        Ok(())
    }

    fn create_stream(device, priority: i32, stream: *mut u64) {
        stream.write(device.create_stream(priority)?.0);
        Ok(())
    }

    fn destroy_stream(device, stream: u64) {
        device.destroy_stream(StreamId(stream))
    }

    fn mark(device, stream: u64, mark: *mut raw::Mark) {
        mark.write(convert::mark(device.mark(StreamId(stream))?));
        Ok(())
    }

    fn wait(device, stream: u64, of: u64, mark: raw::Mark) {
        device.wait(StreamId(stream), StreamId(of), convert::to_mark(mark))
    }

    fn completed(device, stream: u64, mark: *mut u64) {
        mark.write(device.completed(StreamId(stream))?);
        Ok(())
    }

    fn stamp(device, stream: u64, stamp: *mut u64) {
        stamp.write(device.stamp(StreamId(stream))?.0);
        Ok(())
    }

    fn elapsed_ns(device, from: u64, to: u64, nanoseconds: *mut i64) {
        nanoseconds.write(device.elapsed_ns(Stamp(from), Stamp(to))?);
        Ok(())
    }

    fn copy(device, stream: u64, dst: *const raw::End, src: *const raw::End, len: u64) {
        convert::check_end(dst, "copy")?;
        convert::check_end(src, "copy")?;
        device.copy(StreamId(stream), convert::to_end(dst), convert::to_end(src), len)
    }

    fn fill(device, stream: u64, dst: raw::Place, pattern: *const c_void, pattern_len: u32, len: u64) {
        let bytes = raw::ConstText { data: pattern.cast(), length: pattern_len as usize };
        let Some(pattern) = Pattern::new(text::borrowed(bytes)) else {
            return Err(Fault::invalid("fill", format!("a pattern of {pattern_len} bytes")));
        };
        device.fill(StreamId(stream), convert::to_place(dst), pattern, len)
    }

    fn write(device, stream: u64, dst: raw::Place, bytes: *const c_void, len: u32) {
        let bytes = text::borrowed(raw::ConstText { data: bytes.cast(), length: len as usize });
        device.write(StreamId(stream), convert::to_place(dst), bytes)
    }

    fn host_call(device, stream: u64, function: *const raw::HostFn) {
        device.host_call(StreamId(stream), convert::to_host_fn(function, "host_call")?)
    }

    fn launch(device, stream: u64, kernel: u64, launch: *const Launch, args: *const raw::Arg, count: usize) {
        let args = convert::to_args(args, count, "launch")?;
        device.launch(StreamId(stream), Kernel(kernel), convert::to_launch(launch), args)
    }
}

unsafe extern "C" fn native_mem(device: *mut raw::Device, mem: u64) -> u64 {
    // SAFETY: as in `answers`.
    contained(0, || unsafe { of(device).native_mem(Mem(mem)) })
}

unsafe extern "C" fn native_stream(device: *mut raw::Device, stream: u64) -> u64 {
    // SAFETY: as in `answers`.
    contained(0, || unsafe { of(device).native_stream(StreamId(stream)) })
}

unsafe extern "C" fn drop_stamp(device: *mut raw::Device, stamp: u64) {
    // SAFETY: as in `answers`.
    contained((), || unsafe { of(device).drop_stamp(Stamp(stamp)) });
}

unsafe extern "C" fn builtin(device: *mut raw::Device, number: u32, kernel: *mut u64) -> u32 {
    contained(0, || {
        // SAFETY: as in `answers`.
        unsafe {
            match of(device).builtin(number) {
                Some(Kernel(found)) => {
                    kernel.write(found);
                    1
                }
                None => 0,
            }
        }
    })
}

unsafe extern "C" fn wait_host(
    device: *mut raw::Device,
    stream: u64,
    mark: u64,
    nanoseconds: u64,
    mode: u32,
    fault: *mut raw::Fault,
) -> u32 {
    let until = if mark == raw::NOW { Until::Now } else { Until::Mark(mark) };
    let mode = if mode == raw::WAIT_BLOCK { WaitMode::Block } else { WaitMode::Auto };
    // SAFETY: as in `answers`.
    unsafe {
        answer_or_time_out(fault, || {
            let deadline = match nanoseconds {
                raw::FOREVER => None,
                left => Instant::now().checked_add(Duration::from_nanos(left)),
            };
            let waited = of(device).wait_host(StreamId(stream), until, deadline, mode)?;
            Ok(waited == Waited::Ended)
        })
    }
}
