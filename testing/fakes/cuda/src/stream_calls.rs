//! Exports about streams, events and host functions.

use crate::call::{Result, exports, lock, put};
use crate::context::{current, current_even_if_lost};
use crate::event::{self, Event, Recorded};
use crate::graph::{self, unsafe_call};
use crate::memory;
use crate::schedule::wait_until;
use crate::stream::{self, Work};
use anyaccel_cuda::sys::*;
use std::ffi::c_void;

/// Waits for an event on this thread.
pub(crate) fn wait_for(event: &Event) -> Result {
    let last = lock(&event.last).clone();
    match last {
        Recorded::Nothing => Ok(()),
        Recorded::Captured(capture, _) => Err(capture.break_with(CUDA_ERROR_CAPTURED_EVENT)),
        Recorded::Point(point) => {
            wait_until(|| point.ended());
            if point.lost() == 0 { Ok(()) } else { Err(point.lost()) }
        }
    }
}

fn time(event: &Event) -> Result<u64> {
    if event.flags & CU_EVENT_DISABLE_TIMING != 0 {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    match &*lock(&event.last) {
        Recorded::Point(point) => point.time().ok_or(CUDA_ERROR_NOT_READY),
        _ => Err(CUDA_ERROR_INVALID_HANDLE),
    }
}

exports! {
    fn cuStreamCreateWithPriority(out: *mut CUstream, flags: u32, _priority: i32) {
        let here = current()?;
        if flags > CU_STREAM_NON_BLOCKING {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        put(out, stream::create(here))
    }

    fn cuStreamDestroy_v2(on: CUstream) {
        current()?;
        stream::destroy(on)
    }

    fn cuStreamWaitEvent(on: CUstream, event: CUevent, flags: u32) {
        let stream = stream::here(current()?, on)?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        stream.wait(&*event::get(event)?)
    }

    fn cuStreamIsCapturing(on: CUstream, status: *mut u32) {
        current()?;
        let stream = stream::get(on)?;
        let capture = lock(&stream.state).capture.as_ref().map(|joined| joined.capture.status());
        put(status, capture.unwrap_or(CU_STREAM_CAPTURE_STATUS_NONE))
    }

    fn cuEventCreate(out: *mut CUevent, flags: u32) {
        let here = current()?;
        if flags & CU_EVENT_INTERPROCESS != 0 && flags & CU_EVENT_DISABLE_TIMING == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        put(out, event::create(here.ordinal, flags))
    }

    fn cuEventRecord(event: CUevent, on: CUstream) {
        let stream = stream::here(current()?, on)?;
        let event = event::get(event)?;
        if event.ordinal != stream.ordinal {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        stream.record(&event)
    }

    fn cuEventQuery(event: CUevent) {
        let here = current()?;
        unsafe_call()?;
        let event = event::get(event)?;
        let last = lock(&event.last).clone();
        match last {
            Recorded::Nothing => Ok(()),
            Recorded::Captured(capture, _) => Err(capture.break_with(CUDA_ERROR_CAPTURED_EVENT)),
            Recorded::Point(point) if point.ended() => {
                // What a lost card had to do has not ended well.
                match (point.lost(), here.ordinal == event.ordinal) {
                    (0, _) | (_, false) => Ok(()),
                    (code, true) => Err(code),
                }
            }
            Recorded::Point(_) => Err(CUDA_ERROR_NOT_READY),
        }
    }

    fn cuEventSynchronize(event: CUevent) {
        current()?;
        wait_for(&*event::get(event)?)?;
        current().map(drop)
    }

    fn cuEventElapsedTime(millis: *mut f32, from: CUevent, to: CUevent) {
        current()?;
        let (from, to) = (event::get(from)?, event::get(to)?);
        let (from, to) = (time(&from)?, time(&to)?);
        put(millis, ((to as f64 - from as f64) / 1e6) as f32)
    }

    fn cuEventDestroy_v2(event: CUevent) {
        current_even_if_lost()?;
        event::destroy(event)
    }

    fn cuIpcGetEventHandle(out: *mut CUipcEventHandle, event: CUevent) {
        current()?;
        if event::get(event)?.flags & CU_EVENT_INTERPROCESS == 0 {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        let mut reserved = [0; 64];
        reserved[..8].copy_from_slice(&(event.0 as u64).to_le_bytes());
        reserved[8..16].copy_from_slice(b"fakecuda");
        put(out, CUipcEventHandle { reserved })
    }

    fn cuIpcOpenEventHandle(out: *mut CUevent, handle: CUipcEventHandle) {
        current()?;
        if &handle.reserved[8..16] != b"fakecuda" {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut number = [0; 8];
        number.copy_from_slice(&handle.reserved[..8]);
        put(out, event::share(&event::get(CUevent(u64::from_le_bytes(number) as usize))?))
    }

    fn cuLaunchHostFunc(on: CUstream, function: CUhostFn, data: *mut c_void) {
        stream::here(current()?, on)?.enqueue(Work::Host { function, data: data as usize })
    }

    fn cuStreamWaitValue32_v2(on: CUstream, address: CUdeviceptr, value: u32, flags: u32) {
        let stream = stream::here(current()?, on)?;
        if !address.is_multiple_of(4) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        memory::device(address, 4)?;
        stream.enqueue(Work::WaitValue { address, value, flags })
    }

    fn cuThreadExchangeStreamCaptureMode(mode: *mut u32) {
        let new = mode.read();
        if new > CU_STREAM_CAPTURE_MODE_RELAXED {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        put(mode, graph::exchange_mode(new))
    }
}
