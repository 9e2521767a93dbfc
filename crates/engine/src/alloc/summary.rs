//! The statistics as a table that a person can read.

use std::fmt::Write;

use super::cache::DeviceCache;
use super::oom::human;
use super::stats::{PoolStat, Stat};

// 80 columns in all.
const WIDTH: usize = 20;
const CELL: usize = 11;

fn row(out: &mut String, name: &str, stat: &Stat, bytes: bool) {
    let cell = |n: u64| if bytes { human(n) } else { n.to_string() };
    let _ = writeln!(
        out,
        "| {name:<WIDTH$} | {:>CELL$} | {:>CELL$} | {:>CELL$} | {:>CELL$} |",
        cell(stat.current),
        cell(stat.peak),
        cell(stat.allocated),
        cell(stat.freed)
    );
}

fn rule(out: &mut String) {
    let _ = writeln!(out, "|{}|", "-".repeat(WIDTH + 2 + 4 * (CELL + 3)));
}

impl DeviceCache {
    /// The memory summary: a table of every statistic, with the totals of both pools apart unless `abbreviated`.
    pub fn memory_summary(&self, abbreviated: bool) -> String {
        let stats = self.stats();
        let memory = self.memory();
        let mut out = String::new();
        rule(&mut out);
        let head = format!("device {}: {} in all", self.device, human(memory.total));
        let free = memory.free.map_or(String::from("free: unknown"), |n| format!("{} free", human(n)));
        let wide = WIDTH + 4 * (CELL + 3);
        let _ = writeln!(out, "| {:<wide$} |", format!("{head}, {free}"));
        for line in [
            format!(
                "out of memory: {}   retries: {}   rejections: {}",
                stats.num_ooms, stats.num_alloc_retries, stats.num_oom_rejections
            ),
            format!("calls to the device: {} to take, {} to give back", stats.num_device_alloc, stats.num_device_free),
        ] {
            let _ = writeln!(out, "| {line:<wide$} |");
        }
        rule(&mut out);
        let _ = writeln!(
            out,
            "| {:<WIDTH$} | {:>CELL$} | {:>CELL$} | {:>CELL$} | {:>CELL$} |",
            "", "now", "peak", "allocated", "freed"
        );
        rule(&mut out);
        let table: [(&str, &PoolStat, bool); 9] = [
            ("allocated memory", &stats.allocated_bytes, true),
            ("active memory", &stats.active_bytes, true),
            ("requested memory", &stats.requested_bytes, true),
            ("reserved memory", &stats.reserved_bytes, true),
            ("unused, split", &stats.inactive_split_bytes, true),
            ("allocations", &stats.allocation, false),
            ("active blocks", &stats.active, false),
            ("segments", &stats.segment, false),
            ("unused blocks, split", &stats.inactive_split, false),
        ];
        for (name, stat, bytes) in table {
            row(&mut out, name, &stat.all, bytes);
            if !abbreviated {
                row(&mut out, "  small pool", &stat.small, bytes);
                row(&mut out, "  large pool", &stat.large, bytes);
                rule(&mut out);
            }
        }
        if stats.max_split_size >= 0 {
            row(&mut out, "oversize allocations", &stats.oversize_allocations, false);
            row(&mut out, "oversize segments", &stats.oversize_segments, false);
        }
        for (id, stat) in &stats.reserved_bytes_by_private_pools {
            row(&mut out, &format!("reserved, pool {id}"), &stat.all, true);
        }
        if abbreviated || stats.max_split_size >= 0 || !stats.reserved_bytes_by_private_pools.is_empty() {
            rule(&mut out);
        }
        out
    }
}
