//! One line of a replay's answer, as JSON.

use std::fmt::Write;

use super::super::stats::{PoolStat, Stat, Stats};
use super::super::{BlockView, SegmentView};

/// A line under construction.
pub(super) struct Line(String);

fn quote(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

fn list<T>(out: &mut String, items: impl IntoIterator<Item = T>, mut item: impl FnMut(&mut String, T)) {
    out.push('[');
    for (i, x) in items.into_iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        item(out, x);
    }
    out.push(']');
}

fn number(out: &mut String, n: u64) {
    let _ = write!(out, "{n}");
}

fn stat(out: &mut String, s: Stat) {
    list(out, [s.current, s.peak, s.allocated, s.freed], number);
}

fn by_pool(out: &mut String, s: &PoolStat) {
    list(out, s.parts(), stat);
}

impl Line {
    pub(super) fn new(index: u64, op: &str) -> Self {
        let mut out = format!("{{\"i\":{index},\"op\":");
        quote(&mut out, op);
        Line(out)
    }

    pub(super) fn result(&mut self, result: &str) {
        let _ = write!(self.0, ",\"r\":\"{result}\"");
    }

    pub(super) fn error(&mut self, message: &str) {
        self.result("err");
        self.0.push_str(",\"msg\":");
        quote(&mut self.0, message.lines().next().unwrap_or_default());
    }

    pub(super) fn place(&mut self, segment: u64, offset: u64) {
        let _ = write!(self.0, ",\"seg\":{segment},\"off\":{offset}");
    }

    pub(super) fn calls(&mut self, calls: &[String]) {
        if !calls.is_empty() {
            self.0.push_str(",\"dev\":");
            list(&mut self.0, calls, |out, call| quote(out, call));
        }
    }

    pub(super) fn segments(&mut self, segments: &[SegmentView]) {
        self.0.push_str(",\"segments\":");
        list(&mut self.0, segments, |out, s| {
            let requested: u64 = s.blocks.iter().map(|b| b.requested).sum();
            let _ = write!(
                out,
                "{{\"seg\":{},\"off\":{},\"total\":{},\"requested\":{requested},\"allocated\":{},\"active\":{},\
                 \"stream\":{},\"large\":{}",
                s.token,
                s.offset,
                s.bytes(|_| true),
                s.bytes(|b| b.allocated),
                s.bytes(|b| b.active),
                s.stream,
                u8::from(s.large)
            );
            if s.growable {
                out.push_str(",\"expandable\":1");
            }
            if let Some(pool) = s.pool {
                let _ = write!(out, ",\"pool\":[{},{}]", pool.0, pool.1);
            }
            out.push_str(",\"blocks\":");
            list(out, &s.blocks, |out, b: &BlockView| {
                list(out, [b.size, b.requested, b.allocated.into(), b.active.into(), 0], number);
            });
            out.push('}');
        });
    }

    pub(super) fn stats(&mut self, s: &Stats) {
        let out = &mut self.0;
        out.push_str(",\"stats\":{");
        for (name, value) in [
            ("allocation", &s.allocation),
            ("segment", &s.segment),
            ("active", &s.active),
            ("inactive_split", &s.inactive_split),
            ("allocated_bytes", &s.allocated_bytes),
            ("reserved_bytes", &s.reserved_bytes),
            ("active_bytes", &s.active_bytes),
            ("inactive_split_bytes", &s.inactive_split_bytes),
            ("requested_bytes", &s.requested_bytes),
        ] {
            let _ = write!(out, "\"{name}\":");
            by_pool(out, value);
            out.push(',');
        }
        out.push_str("\"oversize_allocations\":");
        stat(out, s.oversize_allocations);
        out.push_str(",\"oversize_segments\":");
        stat(out, s.oversize_segments);
        for (name, value) in [
            ("num_alloc_retries", s.num_alloc_retries),
            ("num_ooms", s.num_ooms),
            ("num_sync_all_streams", s.num_sync_all_streams),
            ("num_device_alloc", s.num_device_alloc),
            ("num_device_free", s.num_device_free),
            ("num_oom_rejections", s.num_oom_rejections),
        ] {
            let _ = write!(out, ",\"{name}\":{value}");
        }
        let _ = write!(out, ",\"max_split_size\":{}", s.max_split_size);
        if !s.reserved_bytes_by_private_pools.is_empty() {
            out.push_str(",\"reserved_bytes_by_private_pools\":{");
            for (i, (id, stat)) in s.reserved_bytes_by_private_pools.iter().enumerate() {
                let _ = write!(out, "{}\"{id}\":", if i > 0 { "," } else { "" });
                by_pool(out, stat);
            }
            out.push('}');
        }
        out.push('}');
    }

    pub(super) fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}
