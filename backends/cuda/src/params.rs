//! Sizes of a kernel's parameters, read from the head of its PTX: drivers before 12.4 do not tell them.

/// Sizes in bytes of the parameters of an entry; `None` if the text has no such entry or is not understood.
pub(crate) fn of_entry(ptx: &str, entry: &str) -> Option<Vec<usize>> {
    let mut rest = ptx;
    loop {
        rest = &rest[rest.find(".entry")? + ".entry".len()..];
        let name = rest.trim_start();
        let end =
            name.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%'))).unwrap_or(name.len());
        if &name[..end] == entry {
            let after = name[end..].trim_start();
            return match after.strip_prefix('(') {
                Some(list) => {
                    list[..list.find(')')?].split(',').filter(|param| !param.trim().is_empty()).map(size).collect()
                }
                None => Some(Vec::new()),
            };
        }
    }
}

/// The size of `.param .align 8 .b8 name[64]`.
fn size(param: &str) -> Option<usize> {
    let words = param.split_whitespace();
    let kind = words.clone().find_map(|word| {
        let bits = word.strip_prefix(['.'])?.strip_prefix(['u', 's', 'b', 'f'])?;
        bits.parse::<usize>().ok()
    })?;
    let name = words.last()?;
    let count = match name.split_once('[') {
        Some((_, len)) => len.strip_suffix(']')?.parse().ok()?,
        None => 1,
    };
    Some(kind / 8 * count)
}

#[cfg(test)]
mod tests {
    use super::of_entry;

    const PTX: &str = ".version 7.8\n.visible .entry first(\n\t.param .u64 .ptr .global .align 4 a,\n\t.param .f32 b,\n\t\
        .param .align 8 .b8 c[24]\n)\n{\n\tret;\n}\n.visible .entry none()\n{ ret; }\n.entry bare\n{ ret; }\n";

    #[test]
    fn sizes_are_read_from_the_head() {
        assert_eq!(of_entry(PTX, "first"), Some(vec![8, 4, 24]));
        assert_eq!(of_entry(PTX, "none"), Some(vec![]));
        assert_eq!(of_entry(PTX, "bare"), Some(vec![]));
        assert_eq!(of_entry(PTX, "fir"), None);
        assert_eq!(of_entry(".entry odd(.param .pred p) {}", "odd"), None);
    }

    #[test]
    fn the_kernels_of_this_crate_are_understood() {
        assert_eq!(of_entry(include_str!("write.ptx"), "anyaccel_write"), Some(vec![8, 64, 4]));
        for builtin in anyaccel_kernels::Builtin::ALL.iter().copied() {
            let program = anyaccel_kernels::device::Program::of(builtin);
            let sizes = of_entry(anyaccel_kernels::device::cuda::ptx(program), builtin.name());
            let mut expected = vec![8; 2 * builtin.places()];
            if builtin.params_size() > 0 {
                expected.push(builtin.params_size());
            }
            assert_eq!(sizes, Some(expected), "{builtin}");
        }
    }
}
