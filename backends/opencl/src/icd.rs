//! Which drivers the loader would load: the files that name them, read without loading any.
//!
//! The two loaders in use agree on this much. `OCL_ICD_VENDORS` is a directory of `.icd` files, or one such file, or the
//! name of a library; without it `/etc/OpenCL/vendors` is the directory. The first line of an `.icd` file is a library.
//! `OCL_ICD_FILENAMES` lists libraries that count as well.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

const VENDORS: &str = "OCL_ICD_VENDORS";
const FILENAMES: &str = "OCL_ICD_FILENAMES";
#[cfg(target_os = "android")]
const DIRECTORY: &str = "/system/vendor/Khronos/OpenCL/vendors";
#[cfg(not(target_os = "android"))]
const DIRECTORY: &str = "/etc/OpenCL/vendors";

/// One driver that is named somewhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Icd {
    /// What names it: a file or a variable.
    pub(crate) named_by: String,
    pub(crate) state: State,
}

/// What became of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// The library is there.
    Found(PathBuf),
    /// A name without a directory, which is in none of the usual ones. The linker may know more.
    Unsure(String),
    /// A path where there is nothing.
    Gone(String),
    /// The library or the file that names it can't be read by this user.
    Forbidden(String),
    /// The file names nothing.
    Empty,
}

impl State {
    /// Whether a loader could load it.
    pub(crate) const fn possible(&self) -> bool {
        matches!(self, Self::Found(_) | Self::Unsure(_))
    }
}

/// Where was looked, and what is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Search {
    /// The places, in words.
    pub(crate) places: String,
    pub(crate) icds: Vec<Icd>,
    /// A directory that can't be listed, and why.
    pub(crate) trouble: Option<String>,
}

impl Search {
    /// Whether any driver could be loaded.
    pub(crate) fn possible(&self) -> bool {
        self.icds.iter().any(|icd| icd.state.possible())
    }
}

/// Looks where the loader looks.
pub(crate) fn search() -> Search {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty());
    let vendors = set(VENDORS);
    let (mut search, vendors_name) = match &vendors {
        Some(value) => (vendors_of(Path::new(value)), format!("{VENDORS}={}", value.to_string_lossy())),
        None => (directory(Path::new(DIRECTORY)), DIRECTORY.to_owned()),
    };
    search.places = vendors_name;
    if let Some(list) = set(FILENAMES) {
        search.places.push_str(&format!(", {FILENAMES}={}", list.to_string_lossy()));
        for library in env::split_paths(&list).filter(|library| !library.as_os_str().is_empty()) {
            search.icds.push(Icd { named_by: FILENAMES.to_owned(), state: library_state(&library.to_string_lossy()) });
        }
    }
    search
}

fn vendors_of(value: &Path) -> Search {
    let one = |icd| Search { places: String::new(), icds: vec![icd], trouble: None };
    if value.is_dir() {
        directory(value)
    } else if value.extension() == Some(OsStr::new("icd")) {
        one(file(value))
    } else if value.is_absolute() && !value.exists() {
        Search { places: String::new(), icds: Vec::new(), trouble: Some(format!("{}: not there", value.display())) }
    } else {
        one(Icd { named_by: VENDORS.to_owned(), state: library_state(&value.to_string_lossy()) })
    }
}

fn directory(path: &Path) -> Search {
    let (mut icds, mut trouble) = (Vec::new(), None);
    match fs::read_dir(path) {
        Ok(entries) => {
            let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
            let mut files: Vec<PathBuf> = paths.filter(|path| path.extension() == Some(OsStr::new("icd"))).collect();
            files.sort();
            icds = files.iter().map(|path| file(path)).collect();
        }
        Err(error) => trouble = Some(format!("{}: {error}", path.display())),
    }
    Search { places: String::new(), icds, trouble }
}

fn file(path: &Path) -> Icd {
    let state = match fs::read_to_string(path) {
        Ok(text) => match text.lines().next().map(str::trim).filter(|line| !line.is_empty()) {
            Some(library) => library_state(library),
            None => State::Empty,
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => State::Gone(path.display().to_string()),
        Err(error) => State::Forbidden(format!("{}: {error}", path.display())),
    };
    Icd { named_by: path.display().to_string(), state }
}

fn library_state(library: &str) -> State {
    let path = Path::new(library);
    if path.components().count() > 1 {
        return match fs::File::open(path) {
            Ok(_) => State::Found(path.to_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                State::Forbidden(format!("{library}: {error}"))
            }
            Err(_) => State::Gone(library.to_owned()),
        };
    }
    match directories().map(|directory| directory.join(library)).find(|path| path.exists()) {
        Some(path) => State::Found(path),
        None => State::Unsure(library.to_owned()),
    }
}

/// Where libraries usually are.
fn directories() -> impl Iterator<Item = PathBuf> {
    let listed = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let own: Vec<PathBuf> = env::split_paths(&listed).filter(|path| !path.as_os_str().is_empty()).collect();
    let triplet = format!("{}-linux-gnu", env::consts::ARCH);
    let usual = ["/usr/local/lib", "/lib", "/usr/lib", "/lib64", "/usr/lib64"].map(PathBuf::from);
    let multiarch = ["/usr/local/lib", "/lib", "/usr/lib"].map(|path| Path::new(path).join(&triplet));
    own.into_iter().chain(multiarch).chain(usual)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_name_libraries() {
        let directory = env::temp_dir().join(format!("anyaccel-icd-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory for files");
        let there = directory.join("libthere.so");
        fs::write(&there, "").expect("a file");
        let write = |name: &str, text: &str| fs::write(directory.join(name), text).expect("a file");
        write("a.icd", &format!("{}\n", there.display()));
        write("b.icd", "/no/such/library.so\n");
        write("c.icd", "libno-such-driver.so.7");
        write("d.icd", "\n");
        write("notes.txt", "/no/such/library.so");
        let found = super::directory(&directory);
        let states: Vec<State> = found.icds.iter().map(|icd| icd.state.clone()).collect();
        let expected = [
            State::Found(there.clone()),
            State::Gone("/no/such/library.so".into()),
            State::Unsure("libno-such-driver.so.7".into()),
            State::Empty,
        ];
        assert_eq!(states, expected);
        assert!(found.possible());
        let gone = vendors_of(&directory.join("b.icd"));
        assert!(!gone.possible() && gone.icds.len() == 1);
        fs::remove_dir_all(&directory).expect("the directory to go");
        assert!(super::directory(&directory).trouble.is_some());
        assert!(vendors_of(&directory).trouble.is_some());
    }
}
