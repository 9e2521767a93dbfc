//! Sizes and stacks as text.

use crate::{FrameId, Snapshot, StackId};

/// Frames of the program's own that name a stack: who asked, and who called that.
const CALLERS: usize = 3;

/// Bytes in a binary unit, two digits after the point: `348.25 MiB`.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.2} {}", UNITS[unit])
}

/// A count and its noun: `1 piece`, `2 pieces`.
pub fn counted(count: u64, one: &str, more: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {more}") }
}

/// Files that are the framework's own: the frame that a reader looks for is rarely in them.
fn is_inner(file: &str) -> bool {
    // Where it is installed, and where it is worked on. Programs may have a directory of that name.
    const FRAMEWORK: [&str; 7] = [
        "-packages/torch/",
        "/torch/nn/",
        "/torch/optim/",
        "/torch/autograd/",
        "/torch/utils/",
        "/torch/csrc/",
        "/torch/_",
    ];
    let file = file.replace('\\', "/");
    let in_library = file.ends_with(".so") || file.contains(".so.");
    file.is_empty() || file == "??" || in_library || FRAMEWORK.iter().any(|part| file.contains(part))
}

/// A stack in one line: the innermost frames that are the program's own, else the innermost frame.
pub fn stack_line(snapshot: &Snapshot, stack: StackId) -> String {
    if stack == StackId::ABSENT {
        return "an unrecorded stack".into();
    }
    let frames = snapshot.stacks.get(stack);
    let Some(&first) = frames.first() else {
        return "a thread without a Python stack (backward, most often)".into();
    };
    let is_own = |frame: &FrameId| {
        let file = snapshot.frames.get(frame.0 as usize).map_or("", |frame| snapshot.names.get(frame.file));
        !is_inner(file)
    };
    let own: Vec<String> =
        frames.iter().filter(|frame| is_own(frame)).take(CALLERS).map(|&frame| short(snapshot, frame)).collect();
    if own.is_empty() { short(snapshot, first) } else { own.join(" < ") }
}

/// A frame, with names that fit a line: the end of each tells most.
fn short(snapshot: &Snapshot, frame: FrameId) -> String {
    const LONGEST: usize = 48;
    let text = snapshot.frame_text(frame);
    let part = |word: &str| {
        let length = word.chars().count();
        if length <= LONGEST {
            return word.to_owned();
        }
        let opened = if word.starts_with('(') { "(" } else { "" };
        let end: String = word.chars().skip(length + opened.len() + 3 - LONGEST).collect();
        format!("{opened}...{end}")
    };
    text.split(' ').map(part).collect::<Vec<_>>().join(" ")
}

/// A stack as lines, innermost first, `most` of them.
pub fn stack_lines(snapshot: &Snapshot, stack: StackId, most: usize) -> Vec<String> {
    snapshot.stacks.get(stack).iter().take(most).map(|&frame| snapshot.frame_text(frame)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(365_166_592), "348.25 MiB");
        assert_eq!(bytes(80 << 30), "80.00 GiB");
    }
    #[test]
    fn frames_of_the_framework_are_not_the_programs() {
        let torch = "/usr/lib/python3.11/site-packages/torch/nn/modules/conv.py";
        for inner in [
            torch,
            "C:\\env\\Lib\\site-packages\\torch\\_ops.py",
            "/src/pytorch/torch/nn/functional.py",
            "",
            "libc.so.6",
        ] {
            assert!(is_inner(inner), "{inner}");
        }
        for own in
            ["train.py", "/home/me/torch/train.py", "examples/torch/small.py", "/mytorch/nn.py", "torch.autograd"]
        {
            assert!(!is_inner(own), "{own}");
        }
    }

    #[test]
    fn long_names_keep_their_end_and_their_brackets() {
        let mut snapshot = Snapshot::new();
        let (name, file) =
            (snapshot.names.intern("_conv_forward"), snapshot.names.intern(&format!("/{}/conv.py", "x".repeat(80))));
        let frame = snapshot.frame(crate::Frame { name, file, line: 560 });
        let text = short(&snapshot, frame);
        assert!(text.starts_with("_conv_forward (...xxx") && text.ends_with("x/conv.py:560)"), "{text}");
        assert_eq!(text.chars().count(), "_conv_forward ".len() + 48);
    }
}
