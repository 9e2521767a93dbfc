//! Whether the segments of a snapshot can be: blocks lie in their segment, one behind the other.

use crate::read::ReadError;
use crate::{Segment, Snapshot};

/// Checks the segments of devices and of pinned memory.
///
/// # Errors
/// The first block or segment that overlaps another one, by address.
pub(crate) fn segments(snapshot: &Snapshot) -> Result<(), ReadError> {
    for (list, what) in [(&snapshot.segments, "segment"), (&snapshot.host_segments, "pinned segment")] {
        for segment in list {
            blocks(segment, what)?;
        }
        let mut order: Vec<&Segment> = list.iter().collect();
        order.sort_unstable_by_key(|segment| (segment.device, segment.addr));
        for pair in order.windows(2) {
            let end = pair[0].addr + pair[0].total;
            if pair[0].device == pair[1].device && end > pair[1].addr {
                return Err(ReadError::Inconsistent(format!(
                    "the {what}s at {:#x} ({} bytes) and {:#x} of device {} overlap",
                    pair[0].addr, pair[0].total, pair[1].addr, pair[1].device
                )));
            }
        }
    }
    Ok(())
}

fn blocks(segment: &Segment, what: &str) -> Result<(), ReadError> {
    let mut end = segment.addr;
    for block in &segment.blocks {
        if block.addr < end {
            return Err(ReadError::Inconsistent(format!(
                "the block at {:#x} begins before the one before it ends, at {end:#x}, in the {what} at {:#x} of device {}",
                block.addr, segment.addr, segment.device
            )));
        }
        end = block.addr + block.size;
    }
    if end > segment.addr + segment.total {
        return Err(ReadError::Inconsistent(format!(
            "the blocks of the {what} at {:#x} of device {} end at {end:#x}, but it has {} bytes",
            segment.addr, segment.device, segment.total
        )));
    }
    Ok(())
}
