//! Just enough of an assembler: which functions a PTX has, what they take, and whether it would assemble.

use crate::call::Result;
use anyaccel_cuda::sys::{CUDA_ERROR_INVALID_PTX, CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_UNSUPPORTED_PTX_VERSION};

/// A function that can be launched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// Offset and size of each parameter.
    pub(crate) params: Vec<(usize, usize)>,
}

/// The newest version of PTX that the driver of a version of CUDA reads.
pub(crate) fn newest((major, minor): (u32, u32)) -> (u32, u32) {
    match (major, minor) {
        (..=11, _) => (7, 8),
        (12, 0..=8) => (8, if minor < 8 { minor } else { 7 }),
        (12, _) => (8, 8),
        _ => (9, minor),
    }
}

/// Statements begin with one of these, before the first dot.
const OPCODES: &str = "abs activemask add addc alloca and applypriority atom bar barrier bfe bfi bfind bmsk bra brev \
    brkpt brx call clz cnot copysign cos cp createpolicy cvt cvta discard div dp2a dp4a elect ex2 exit fence fma \
    fns getctarank griddepcontrol isspacep istypep ld ldmatrix ldu lg2 lop3 mad mad24 madc mapa match max mbarrier \
    membar min mma mov movmatrix mul mul24 multimem nanosleep neg not or pmevent popc prefetch prefetchu prmt rcp \
    red redux rem ret rsqrt sad selp set setmaxnreg setp shf shfl shl shr sin slct sqrt st stackrestore stacksave \
    stmatrix sub subc suld suq sured sust szext tanh testp tex tld4 trap txq vadd vote wgmma wmma xor";

fn syntax(line: usize, near: &str) -> (u32, String) {
    let log = format!(
        "ptxas application ptx input, line {line}; fatal   : Parsing error near '{near}': syntax error\n\
         ptxas fatal   : Ptx assembly aborted due to errors\n"
    );
    (CUDA_ERROR_INVALID_PTX, log)
}

/// The same text with comments blanked, so that lines stay where they are.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('/') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else {
            out.push('/');
            rest = &rest[1..];
            continue;
        };
        out.extend(rest[..end].chars().filter(|&c| c == '\n'));
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

fn version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.trim().split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn directive<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let at = text.find(name)?;
    text[at + name.len()..].lines().next().map(str::trim)
}

/// Assembles for a device of that compute capability.
pub(crate) fn assemble(
    source: &str,
    driver: (u32, u32),
    capability: (i32, i32),
) -> std::result::Result<Vec<Entry>, (u32, String)> {
    let text = without_comments(source);
    let Some(written) = directive(&text, ".version").and_then(version) else {
        return Err((CUDA_ERROR_INVALID_PTX, "ptxas fatal   : Missing .version directive at start of file\n".into()));
    };
    if written > newest(driver) {
        let (major, minor) = newest(driver);
        let log = format!(
            "ptxas application ptx input, line 1; fatal   : Unsupported .version {}.{}; current version is '{major}.{minor}'\n",
            written.0, written.1
        );
        return Err((CUDA_ERROR_UNSUPPORTED_PTX_VERSION, log));
    }
    let target = directive(&text, ".target").and_then(|target| target.split(',').next()?.trim().strip_prefix("sm_"));
    let Some(target) = target.and_then(|target| target.trim_end_matches(['a', 'f']).parse::<i32>().ok()) else {
        return Err((CUDA_ERROR_INVALID_PTX, "ptxas fatal   : Missing .target directive\n".into()));
    };
    if target > capability.0 * 10 + capability.1 {
        return Err((CUDA_ERROR_NO_BINARY_FOR_GPU, String::new()));
    }
    check(&text)?;
    entries(&text).map_err(|code| (code, String::new()))
}

/// Finds the first statement that no instruction begins.
fn check(text: &str) -> std::result::Result<(), (u32, String)> {
    let mut depth = 0_usize;
    let mut start = 0;
    for (at, c) in text.char_indices() {
        if !matches!(c, '{' | '}' | ';') {
            continue;
        }
        let statement = &text[start..at];
        // Counted only to be told: a pass over all that came before.
        let line = || 1 + text[..start + statement.len() - statement.trim_start().len()].matches('\n').count();
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => return Err(syntax(1 + text[..at].matches('\n').count(), "}")),
            '}' => {
                // A list of initial values, or of operands, ends like this as well.
                depth -= 1;
            }
            _ if depth > 0 => {
                let word = first_word(statement);
                let base = word.split('.').next().unwrap_or_default();
                let fine = word.is_empty() || word.starts_with('.') || OPCODES.split_whitespace().any(|op| op == base);
                if !fine {
                    return Err(syntax(line(), word));
                }
            }
            _ => {}
        }
        start = at + 1;
    }
    if depth == 0 { Ok(()) } else { Err(syntax(1 + text.matches('\n').count(), "end of file")) }
}

/// The opcode of a statement, behind labels and a predicate. Empty for the rest of one that held braces.
fn first_word(statement: &str) -> &str {
    let mut rest = statement.trim_start();
    loop {
        if let Some((label, tail)) = rest.split_once(':')
            && !label.contains(char::is_whitespace)
            && !label.is_empty()
        {
            rest = tail.trim_start();
        } else if rest.starts_with('@') {
            rest = rest.split_once(char::is_whitespace).map_or("", |(_, tail)| tail.trim_start());
        } else {
            break;
        }
    }
    if rest.starts_with([',', ')', ']', '(']) {
        return "";
    }
    rest.split(|c: char| c.is_whitespace()).next().unwrap_or_default()
}

fn entries(text: &str) -> Result<Vec<Entry>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(".entry") {
        rest = &rest[at + ".entry".len()..];
        let end = rest.find(['(', '{', '\n']).unwrap_or(rest.len());
        let name = rest[..end].trim().to_owned();
        let body = rest.find('{').unwrap_or(rest.len());
        let head = &rest[..body];
        let list = match (head.find('('), head.find(')')) {
            (Some(open), Some(close)) if open < close => &head[open + 1..close],
            _ => "",
        };
        let mut params = Vec::new();
        let mut offset = 0_usize;
        for param in list.split(',').filter(|param| !param.trim().is_empty()) {
            let (size, align) = layout(param).ok_or(CUDA_ERROR_INVALID_PTX)?;
            offset = offset.next_multiple_of(align);
            params.push((offset, size));
            offset += size;
        }
        found.push(Entry { name, params });
    }
    Ok(found)
}

/// Size and alignment of `.param .align 8 .b8 name[64]`.
fn layout(param: &str) -> Option<(usize, usize)> {
    let mut words = param.split_whitespace();
    let (mut align, mut size, mut count) = (None, None, 1);
    while let Some(word) = words.next() {
        match word {
            ".align" => align = words.next()?.parse().ok(),
            ".param" | ".ptr" | ".global" | ".const" | ".shared" | ".local" => {}
            _ if word.starts_with('.') => {
                let bits: usize = word.trim_start_matches(['.', 'u', 's', 'b', 'f']).parse().ok()?;
                size = Some(bits / 8);
            }
            name => {
                if let Some((_, len)) = name.split_once('[') {
                    count = len.trim_end_matches(']').parse().ok()?;
                }
            }
        }
    }
    let size = size?;
    Some((size * count, align.unwrap_or(size)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "// a comment\n.version 7.8\n.target sm_60\n.address_size 64\n\
        .visible .entry add(\n\t.param .u64 add_param_0,\n\t.param .u32 add_param_1,\n\t.param .align 8 .b8 add_param_2[24]\n)\n\
        {\n\t.reg .pred %p<2>;\n\tld.param.u64 %rd1, [add_param_0];\n$L__BB0_1:\n\t@%p1 bra $L__BB0_1;\n\t{\n\tmov.u32 %r1, 1;\n\t}\n\tret;\n}\n";

    #[test]
    fn functions_and_their_parameters_are_found() {
        let entries = assemble(GOOD, (11, 8), (7, 0)).expect("it assembles");
        assert_eq!(entries, [Entry { name: "add".into(), params: vec![(0, 8), (8, 4), (16, 24)] }]);
    }

    #[test]
    fn what_does_not_assemble_is_told_with_its_line() {
        let bad = GOOD.replace("mov.u32", "frobnicate.u32");
        let (code, log) = assemble(&bad, (11, 8), (7, 0)).expect_err("it has no such instruction");
        assert_eq!(code, CUDA_ERROR_INVALID_PTX);
        assert!(log.contains("line 16") && log.contains("frobnicate.u32"), "{log}");
        let code = |source: &str, driver| assemble(source, driver, (7, 0)).map_err(|(code, _)| code).expect_err("bad");
        assert_eq!(code("nonsense", (12, 2)), CUDA_ERROR_INVALID_PTX);
        assert_eq!(code(&GOOD.replace("7.8", "8.0"), (11, 8)), CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
        assert_eq!(code(&GOOD.replace("sm_60", "sm_80"), (11, 8)), CUDA_ERROR_NO_BINARY_FOR_GPU);
        assert_eq!(code(&GOOD[..GOOD.len() - 3], (11, 8)), CUDA_ERROR_INVALID_PTX);
    }
}
