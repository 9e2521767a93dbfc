//! What operations name in memory, checked before anything is enqueued: places, ends of copies, kernel arguments.

use crate::counters::Method;
use crate::memory::{Broken, Span};
use crate::state::State;
use crate::stream::Side;
use anyaccel_hal::{End, Fault, Place};

impl State {
    /// A place of a device, with its length (H1, H4).
    pub(crate) fn place(&mut self, method: Method, ordinal: u32, place: Place, len: u64) -> Result<Span, Fault> {
        self.not_empty(method, len)?;
        let device = self.device(ordinal);
        if device.pinned.has(place.mem) {
            let note = format!("pinned memory {} named as device memory", self.named(place.mem.0));
            return Err(self.violations.refuse("H27", method, note));
        }
        if !device.space.has(place.mem) {
            return Err(self.unknown(method, "memory", place.mem.0, ordinal));
        }
        let span = device.space.span(place.mem, place.offset, len);
        self.whole(method, place, span)
    }

    /// A place in pinned memory of a device (H1, H4).
    fn pinned_place(&mut self, method: Method, ordinal: u32, place: Place, len: u64) -> Result<Span, Fault> {
        self.not_empty(method, len)?;
        let pinned = &self.device(ordinal).pinned;
        if !pinned.has(place.mem) {
            return Err(self.unknown(method, "pinned memory", place.mem.0, ordinal));
        }
        let span = pinned.span(place.mem, place.offset, len);
        self.whole(method, place, span)
    }

    fn not_empty(&mut self, method: Method, len: u64) -> Result<(), Fault> {
        if len == 0 { Err(self.violations.refuse("H4", method, "0 bytes")) } else { Ok(()) }
    }

    fn whole(&mut self, method: Method, place: Place, span: Result<Span, Broken>) -> Result<Span, Fault> {
        span.map_err(|(rule, note)| {
            let note = format!("memory {}: {note}", self.named(place.mem.0));
            self.violations.refuse(rule, method, note)
        })
    }

    /// An end of a copy (H4, H5).
    pub(crate) fn side(&mut self, ordinal: u32, end: End, len: u64) -> Result<Side, Fault> {
        match end {
            End::Device(place) => Ok(Side::Span(self.place(Method::Copy, ordinal, place, len)?)),
            End::Pinned(place) => Ok(Side::Span(self.pinned_place(Method::Copy, ordinal, place, len)?)),
            End::Host(ptr) => {
                if !self.device(ordinal).config.host_ends {
                    let note = "any host memory as an end, where DeviceInfo::host_ends is false";
                    return Err(self.violations.refuse("H5", Method::Copy, note));
                }
                if ptr.0.is_null() {
                    return Err(self.violations.refuse("H5", Method::Copy, "a null host pointer"));
                }
                let pinned = &self.device(ordinal).pinned;
                let block = pinned.holding(ptr, len);
                if block.is_none() && pinned.passes_an_end(ptr, len) {
                    let note = format!("{len} bytes from {:p} pass an end of pinned memory", ptr.0);
                    return Err(self.violations.refuse("H5", Method::Copy, note));
                }
                match block {
                    Some(place) => Ok(Side::Span(self.pinned_place(Method::Copy, ordinal, place, len)?)),
                    None => Ok(Side::Host(ptr)),
                }
            }
        }
    }

    /// Memory that a kernel may touch: the device's, or pinned memory that it reaches directly (H4, H15).
    pub(crate) fn argument(&mut self, ordinal: u32, place: Place, len: u64) -> Result<Span, Fault> {
        let device = self.device(ordinal);
        let alignment = device.config.place_alignment;
        if !place.offset.is_multiple_of(alignment) {
            let note = format!("offset {} of an argument is not a multiple of {alignment}", place.offset);
            return Err(self.violations.refuse("H15", Method::Launch, note));
        }
        if device.config.direct && device.pinned.has(place.mem) {
            return self.pinned_place(Method::Launch, ordinal, place, len);
        }
        self.place(Method::Launch, ordinal, place, len)
    }
}
