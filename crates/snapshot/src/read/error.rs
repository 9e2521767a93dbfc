//! Why a file can't be read.

use std::io;

/// Why a file is not a snapshot that can be read. Each is one line; offsets count bytes from the file's start, in a gzip
/// file those of what is packed in it.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file can't be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file ends too early.
    #[error("the {} ends at byte {offset}, in the middle of the snapshot: it was cut off", stream(*.packed))]
    Truncated {
        /// Where.
        offset: u64,
        /// It is a gzip file.
        packed: bool,
    },
    /// The gzip file is damaged.
    #[error("the gzip data is damaged after byte {offset} of what is packed in it: {reason}")]
    Gzip {
        /// Where, in the unpacked data.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
    /// The file asks for more than data.
    #[error("byte {offset}: the pickle wants {what}; a snapshot is plain data, and nothing else is done for a file")]
    Refused {
        /// Where.
        offset: u64,
        /// The opcode and, where it has one, its argument.
        what: String,
    },
    /// The file makes no sense there.
    #[error("byte {offset}: {reason}")]
    Corrupt {
        /// Where.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
    /// The file needs too much memory.
    #[error("byte {offset}: to read on would take more than {} MiB of memory; no snapshot of this size does", .limit >> 20)]
    TooLarge {
        /// Where.
        offset: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// It is something else.
    #[error("{0}")]
    Unrelated(String),
    /// It contradicts itself.
    #[error("{0}")]
    Inconsistent(String),
}

fn stream(packed: bool) -> &'static str {
    if packed { "unpacked gzip data" } else { "file" }
}

/// Text from a file, short enough and printable, for an error.
pub(crate) fn shown(text: &str) -> String {
    const MOST: usize = 60;
    let mut out: String = text.chars().take(MOST).flat_map(char::escape_debug).collect();
    if text.chars().nth(MOST).is_some() {
        out.push_str("...");
    }
    out
}
