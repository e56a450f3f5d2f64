//! The server's jars, fetched once and kept for all rings, with what makes it start fast.

use std::{
    env, fs,
    fs::{File, OpenOptions},
    hash::{DefaultHasher, Hash, Hasher},
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use crate::{LabError, Step, error::Trying, probe, process, ring};

pub const CASSANDRA_VERSION: &str = "5.0.9";
const DEPENDENCY_PLUGIN: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies";
const JAVA_VERSION: &str = "17";

const JAVA_ANSWER_BOUND: Duration = Duration::from_secs(30);
const COMPILE_BOUND: Duration = Duration::from_secs(120);
const FETCH_BOUND: Duration = Duration::from_secs(15 * 60);
/// Of what Maven prints, the end is enough to see why it failed.
const FETCH_OUTPUT_BYTES_MAX: usize = 2_000;

/// A server that is ready to be started.
#[derive(Debug, Clone)]
pub struct Install {
    pub(crate) java: PathBuf,
    /// Jars only: with a directory among them, the archive would be ignored.
    pub(crate) class_path: String,
    pub(crate) archive: Option<PathBuf>,
    pub(crate) probe_classes: PathBuf,
    /// For tools that want to write somewhere.
    pub(crate) scratch: PathBuf,
}

/// Where the server is kept: `lab` in MOBIMIR_LAB_DIR, or else in the user's cache.
pub fn cache_dir() -> PathBuf {
    let from = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    from("MOBIMIR_LAB_DIR")
        .or_else(|| from("XDG_CACHE_HOME").map(|cache| cache.join("mobimir")))
        .or_else(|| from("HOME").map(|home| home.join(".cache/mobimir")))
        .unwrap_or_else(|| env::temp_dir().join("mobimir"))
        .join("lab")
}

impl Install {
    /// What is missing is fetched and made: the first time this takes a minute. Two processes never do it at once.
    pub fn prepare(cache: &Path, progress: &mut dyn FnMut(Step)) -> Result<Self, LabError> {
        let (java, java_version) = find_java(java_candidates())?;
        let home = cache.join(format!("cassandra-{CASSANDRA_VERSION}"));
        fs::create_dir_all(&home).trying(|| format!("cannot make {}", home.display()))?;
        let home = home.canonicalize().trying(|| format!("cannot enter {}", home.display()))?;
        let lib = home.join("lib");
        let archive = home.join(format!("classes-{java_version}.jsa"));
        let mut source = DefaultHasher::new();
        (probe::SOURCE, &java_version).hash(&mut source);
        let probe_classes = home.join(format!("probe-{:016x}", source.finish()));

        if !(lib.exists() && archive.exists() && probe_classes.exists()) {
            let _lock = lock(&home.join("lock"), progress)?;
            if !lib.exists() {
                fetch(&home, &lib, progress)?;
            }
            if !probe_classes.exists() {
                compile_probe(&java, &home, &probe_classes)?;
            }
            if !archive.exists() {
                progress(Step::Archiving);
                let bare = Install {
                    java: java.clone(),
                    class_path: class_path(&lib)?,
                    archive: None,
                    probe_classes: probe_classes.clone(),
                    scratch: home.clone(),
                };
                let partial = home.join("classes.partial");
                remove(&partial)?;
                ring::archive_classes(bare, &partial)?;
                rename(&partial, &archive)?;
                progress(Step::Archived);
            }
        }
        Ok(Install {
            java,
            class_path: class_path(&lib)?,
            archive: Some(archive),
            probe_classes,
            scratch: home,
        })
    }
}

fn class_path(lib: &Path) -> Result<String, LabError> {
    let trying = || format!("cannot read {}", lib.display());
    let mut jars = Vec::new();
    for entry in fs::read_dir(lib).trying(trying)? {
        let path = entry.trying(trying)?.path();
        if path.extension().is_some_and(|extension| extension == "jar") {
            jars.push(path.display().to_string());
        }
    }
    jars.sort();
    Ok(jars.join(":"))
}

pub(crate) fn lock(path: &Path, progress: &mut dyn FnMut(Step)) -> Result<File, LabError> {
    let trying = || format!("cannot lock {}", path.display());
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path).trying(trying)?;
    if file.try_lock().is_err() {
        progress(Step::WaitingForOther);
        file.lock().trying(trying)?;
    }
    Ok(file)
}

/// Into a directory beside the right one, which takes its place when all of it is there.
fn fetch(home: &Path, lib: &Path, progress: &mut dyn FnMut(Step)) -> Result<(), LabError> {
    let maven = find_in_path("mvn").ok_or(LabError::Maven)?;
    progress(Step::Fetching { files: 0 });
    let partial = home.join("lib.partial");
    remove(&partial)?;
    fs::create_dir_all(&partial).trying(|| format!("cannot make {}", partial.display()))?;
    let project = home.join("pom.xml");
    fs::write(&project, pom()).trying(|| format!("cannot write {}", project.display()))?;

    let mut child = Command::new(maven)
        .args(["--batch-mode", "--file"])
        .arg(&project)
        .arg(DEPENDENCY_PLUGIN)
        .arg(format!("-DoutputDirectory={}", partial.display()))
        .arg("-DincludeScope=runtime")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .trying(|| "cannot start mvn".to_owned())?;
    let (lines, output) = std::sync::mpsc::sync_channel(64);
    if let Some(stdout) = child.stdout.take() {
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    break;
                }
            }
        });
    }
    let started = std::time::Instant::now();
    let (mut files, mut said) = (0, String::new());
    // Ends with the program, whose output it is.
    loop {
        let left = FETCH_BOUND.saturating_sub(started.elapsed());
        match output.recv_timeout(left) {
            Ok(line) if line.contains("Downloaded from") => {
                files += 1;
                progress(Step::Fetching { files });
            }
            Ok(line) if line.contains("Downloading from") => {}
            Ok(line) => {
                said.push_str(&line);
                said.push('\n');
            }
            Err(_) => break,
        }
    }
    let left = FETCH_BOUND.saturating_sub(started.elapsed());
    let ended = process::end_within(&mut child, left).trying(|| "cannot wait for mvn".to_owned())?;
    let Some(status) = ended else {
        return Err(LabError::Fetch(format!("mvn was not done after {} s", FETCH_BOUND.as_secs())));
    };
    if !status.success() {
        let start = said.len().saturating_sub(FETCH_OUTPUT_BYTES_MAX);
        let start = (start..said.len()).find(|&at| said.is_char_boundary(at)).unwrap_or(0);
        return Err(LabError::Fetch(format!("mvn failed\n{}", said[start..].trim_end())));
    }
    let jars = class_path(&partial)?;
    if !jars.contains(&format!("cassandra-all-{CASSANDRA_VERSION}.jar")) {
        return Err(LabError::Fetch("the jar of the server is not among what mvn fetched".to_owned()));
    }
    rename(&partial, lib)?;
    progress(Step::Fetched { jars: jars.split(':').count() });
    Ok(())
}

fn pom() -> String {
    format!(
        r#"<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>mobimir</groupId>
  <artifactId>lab</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.cassandra</groupId>
      <artifactId>cassandra-all</artifactId>
      <version>{CASSANDRA_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"#
    )
}

fn compile_probe(java: &Path, home: &Path, target: &Path) -> Result<(), LabError> {
    let javac = java.with_file_name("javac");
    let partial = home.join("probe.partial");
    remove(&partial)?;
    fs::create_dir_all(&partial).trying(|| format!("cannot make {}", partial.display()))?;
    let source = partial.join("Probe.java");
    fs::write(&source, probe::SOURCE).trying(|| format!("cannot write {}", source.display()))?;
    let (status, output) =
        process::output_within(Command::new(javac).arg("-d").arg(&partial).arg(&source), COMPILE_BOUND)
            .trying(|| "cannot start javac".to_owned())?;
    if !status.is_some_and(|status| status.success()) {
        return Err(LabError::Probe(format!("its reader could not be compiled\n{output}")));
    }
    rename(&partial, target)
}

fn java_candidates() -> Vec<PathBuf> {
    let mut candidates = Vec::new();
    if let Some(home) = env::var_os("JAVA_HOME") {
        candidates.push(PathBuf::from(home).join("bin/java"));
    }
    candidates.extend(find_in_path("java"));
    for entry in fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten() {
        candidates.push(entry.path().join("bin/java"));
    }
    candidates
}

/// The first Java of the right version, with its links followed, and its full version.
fn find_java(candidates: Vec<PathBuf>) -> Result<(PathBuf, String), LabError> {
    let mut found = "there is no java".to_owned();
    for candidate in candidates {
        let Ok(java) = candidate.canonicalize() else { continue };
        match java_version(&java) {
            Some(version) if version.split('.').next() == Some(JAVA_VERSION) => {
                if java.with_file_name("javac").exists() {
                    return Ok((java, version));
                }
                found = format!("{} has no compiler beside it", java.display());
            }
            Some(version) => found = format!("{} is {version}", java.display()),
            None => found = format!("{} does not run", java.display()),
        }
    }
    Err(LabError::Java { found })
}

/// From a first line like `openjdk version "17.0.15" 2025-04-15`.
fn java_version(java: &Path) -> Option<String> {
    let (_, output) = process::output_within(Command::new(java).arg("-version"), JAVA_ANSWER_BOUND).ok()?;
    let line = output.lines().find(|line| line.contains(" version \""))?;
    Some(line.split('"').nth(1)?.to_owned())
}

pub(crate) fn find_in_path(program: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(program)).find(|path| is_program(path))
}

pub(crate) fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

pub(crate) fn remove(path: &Path) -> Result<(), LabError> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).trying(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), LabError> {
    fs::rename(from, to).trying(|| format!("cannot rename {} to {}", from.display(), to.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_right_java_is_found_and_its_lack_is_said_in_one_line() {
        let dir = env::temp_dir().join(format!("mobimir-lab-java-{}", std::process::id()));
        let java = |version: &str| {
            let path = dir.join(version).join("java");
            fs::create_dir_all(dir.join(version)).unwrap();
            fs::write(&path, format!("#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n"))
                .unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let (old, right, new) = (java("11.0.2"), java("17.0.15"), java("21.0.1"));
        let missing = dir.join("missing");
        let error = find_java(vec![right.clone()]).unwrap_err().to_string();
        assert!(error.contains("no compiler"), "{error}");
        fs::write(right.with_file_name("javac"), "").unwrap();

        let found = find_java(vec![missing.clone(), old.clone(), right.clone(), new.clone()]).unwrap();
        assert_eq!(found, (right.canonicalize().unwrap(), "17.0.15".to_owned()));
        let error = find_java(vec![old, new]).unwrap_err().to_string();
        assert!(
            error.contains("21.0.1") && error.contains("apt-get install openjdk-17-jdk-headless"),
            "{error}"
        );
        let error = find_java(vec![missing]).unwrap_err().to_string();
        assert!(error.contains("there is no java") && error.lines().count() == 1, "{error}");
        fs::remove_dir_all(dir).unwrap();
    }
}
