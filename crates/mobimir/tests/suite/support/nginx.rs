//! nginx with the configuration that `deploy/` has but for a longer timeout, at a free port, and gone with its test.

use std::{
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, geteuid, kill_process};

const CONFIGURATION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/nginx/conf.d/mobimir.conf");
const INSTANCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/nginx/mobimir");
/// Where it is installed, and where shells of those who are not root do not look for it.
const PROGRAMS: [&str; 2] = ["nginx", "/usr/sbin/nginx"];
/// The configuration gives up a little later than a shop does by default. Shops of the suite take longer.
const READ_TIMEOUT: [&str; 2] = ["proxy_read_timeout 15s;", "proxy_read_timeout 60s;"];
const START_MAX: Duration = Duration::from_secs(300);
/// A port that was free may not be any more.
const TRIES: usize = 5;

pub(crate) struct Nginx {
    child: Child,
    pub(crate) host: String,
    dir: PathBuf,
}

impl Nginx {
    /// With instances at other addresses than those in `deploy/nginx/mobimir`: each of these, and where it is here.
    pub(crate) fn start(dir: &Path, addresses: &[(&str, String)]) -> Self {
        std::fs::create_dir_all(dir.join("mobimir")).unwrap();
        for name in ["products.conf", "carts.conf", "orders.conf", "shop.conf"] {
            let mut text = std::fs::read_to_string(Path::new(INSTANCES).join(name)).unwrap();
            for (there, here) in addresses {
                text = text.replace(there, here);
            }
            assert!(!text.contains("10.0.0."), "an instance is missing: {text}");
            std::fs::write(dir.join("mobimir").join(name), text).unwrap();
        }
        let configuration = std::fs::read_to_string(CONFIGURATION).unwrap();
        assert!(configuration.contains(READ_TIMEOUT[0]), "{CONFIGURATION} has another timeout");
        let configuration = configuration.replace(READ_TIMEOUT[0], READ_TIMEOUT[1]);
        std::fs::write(dir.join("mobimir.conf"), configuration).unwrap();
        // Its workers would be somebody else, who may not enter the directory.
        let user = if geteuid().is_root() { "user root;\n" } else { "" };
        let frame = format!(
            "{user}daemon off;\npid nginx.pid;\nworker_processes 2;\nevents {{ worker_connections 1024; }}\nhttp {{\n\
             client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n\
             include mobimir.conf;\n}}\n"
        );
        std::fs::write(dir.join("nginx.conf"), frame).unwrap();
        for _ in 0..TRIES {
            let free = TcpListener::bind("127.0.0.1:0").unwrap();
            let host = free.local_addr().unwrap().to_string();
            drop(free);
            let site = format!("listen {host};\naccess_log access.log mobimir;\n");
            std::fs::write(dir.join("mobimir/site.conf"), site).unwrap();
            let mut nginx = Self { child: spawn(dir), host, dir: dir.to_owned() };
            if nginx.listens() {
                return nginx;
            }
        }
        panic!(
            "nginx does not start: {}",
            std::fs::read_to_string(dir.join("error.log")).unwrap_or_default()
        );
    }

    fn listens(&mut self) -> bool {
        let started = Instant::now();
        while TcpStream::connect(&self.host).is_err() {
            if self.child.try_wait().unwrap().is_some() || started.elapsed() > START_MAX {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }

    /// How many requests for a path that contains this an instance was asked.
    pub(crate) fn asked(&self, host: &str, part: &str) -> usize {
        let log = std::fs::read_to_string(self.dir.join("access.log")).unwrap_or_default();
        log.lines().filter(|line| line.contains(part) && line.contains(host)).count()
    }

    /// Answers that say that something went wrong, with who gave them.
    pub(crate) fn failures(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.dir.join("access.log")).unwrap_or_default();
        let failed = |line: &&str| line.split("\" ").nth(1).is_some_and(|rest| rest.starts_with('5'));
        log.lines().filter(failed).map(str::to_owned).collect()
    }
}

fn spawn(dir: &Path) -> Child {
    let start = |program: &&str| {
        let mut command = Command::new(program);
        command.args(["-e", "error.log", "-c", "nginx.conf", "-p"]).arg(dir);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()
    };
    PROGRAMS.iter().find_map(start).expect("nginx is installed: `make tools`")
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Its workers end with it only if it is asked to.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.dir.join("error.log")).unwrap_or_default();
            let last: Vec<&str> = log.lines().rev().take(20).collect();
            eprintln!("--- nginx's last words, newest first ---\n{}", last.join("\n"));
        }
    }
}
