//! Chromium, driven over WebDriver, and gone with its test.
//!
//! Every page that a test looks at is photographed (`MOBIMIR_SCREENSHOTS` names the directory to keep the pictures in),
//! must fit its screen, and must leave nothing bad in the browser's console.

use std::{
    io::{BufRead, BufReader, ErrorKind},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use hyper::Method;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::Client;

/// How long a page may take to show what is expected of it.
const WAIT_MAX: Duration = Duration::from_secs(300);
const GLANCE_EVERY: Duration = Duration::from_millis(50);
/// Under this name WebDriver hands out elements.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
const ARGUMENTS: [&str; 10] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
];

pub(crate) const TAB: &str = "\u{e004}";
pub(crate) const ENTER: &str = "\u{e007}";
pub(crate) const DOWN: &str = "\u{e015}";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Screen {
    Phone,
    Desktop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scripts {
    On,
    Off,
}

// Fields are dropped from the top: the browser ends before its profile goes.
pub(crate) struct Browser {
    driver: Driver,
    _profile: TempDir,
    client: Client,
    session: String,
    host: String,
    screen: Screen,
    album: Album,
}

impl Browser {
    /// A browser with an empty profile for the shop at `host`. `journey` names its pictures.
    pub(crate) async fn start(host: &str, journey: &str, screen: Screen, scripts: Scripts) -> Self {
        let driver = Driver::start();
        let profile = TempDir::new().unwrap();
        let mut arguments: Vec<String> = ARGUMENTS.map(str::to_owned).to_vec();
        arguments.push(format!("--user-data-dir={}", profile.path().display()));
        let preferences = match scripts {
            Scripts::On => json!({}),
            Scripts::Off => json!({ "profile.managed_default_content_settings.javascript": 2 }),
        };
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:loggingPrefs": { "browser": "ALL" },
            "goog:chromeOptions": { "args": arguments, "prefs": preferences },
        } } });
        let mut client = Client::new(&format!("127.0.0.1:{}", driver.port));
        let answer = client.post("/session", wanted).await;
        let Some(session) = answer.json()["value"]["sessionId"].as_str().map(str::to_owned) else {
            panic!("Chromium does not start; `make tools` installs it: {}", answer.json());
        };
        let album = Album::open(journey);
        let host = host.to_owned();
        let mut browser = Self { driver, _profile: profile, client, session, host, screen, album };
        let (width, height) = screen.size();
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": screen == Screen::Phone });
        browser.devtools("Emulation.setDeviceMetricsOverride", metrics).await;
        browser.check_scripts(scripts).await;
        browser
    }

    /// That the browser does run scripts, or does not.
    async fn check_scripts(&mut self, scripts: Scripts) {
        let page = "data:text/html,<noscript>quiet</noscript><p id=p>still</p><script>p.textContent='moved'</script>";
        self.navigate(page).await;
        let words = match scripts {
            Scripts::On => "moved",
            Scripts::Off => "quiet still",
        };
        assert_eq!(self.words().await, words);
    }

    pub(crate) async fn open(&mut self, path: &str) {
        self.navigate(&format!("http://{}{path}", self.host)).await;
    }

    async fn navigate(&mut self, url: &str) {
        self.command(Method::POST, "/url", json!({ "url": url })).await.unwrap();
    }

    /// The path of the page, with its query.
    pub(crate) async fn path(&mut self) -> String {
        let url = self.command(Method::GET, "/url", Value::Null).await.unwrap();
        let url = url.as_str().unwrap();
        url.strip_prefix(&format!("http://{}", self.host)).unwrap_or(url).to_owned()
    }

    /// Clicks the first link or button with these words.
    pub(crate) async fn follow(&mut self, words: &str) {
        self.click(&format!("({}|{})", saying("a", words), saying("button", words))).await;
    }

    pub(crate) async fn click(&mut self, selector: &str) {
        self.act(selector, Method::POST, "click", json!({})).await;
    }

    /// Replaces what stands in a field.
    pub(crate) async fn fill(&mut self, selector: &str, text: &str) {
        self.act(selector, Method::POST, "clear", json!({})).await;
        self.act(selector, Method::POST, "value", json!({ "text": text })).await;
    }

    /// Chooses from a list.
    pub(crate) async fn choose(&mut self, list_id: &str, words: &str) {
        self.click(&format!("//select[@id='{list_id}']{}", saying("option", words))).await;
    }

    pub(crate) async fn value(&mut self, selector: &str) -> String {
        let value = self.act(selector, Method::GET, "property/value", Value::Null).await;
        value.as_str().unwrap().to_owned()
    }

    pub(crate) async fn text(&mut self, selector: &str) -> String {
        plain(&self.act(selector, Method::GET, "text", Value::Null).await)
    }

    /// What each of the elements says, as it is seen. Of those that are there now: look for the page first.
    pub(crate) async fn texts(&mut self, selector: &str) -> Vec<String> {
        let found = self.command(Method::POST, "/elements", located(selector)).await.unwrap();
        let mut texts = Vec::new();
        for element in found.as_array().unwrap() {
            let path = format!("/element/{}/text", element[ELEMENT].as_str().unwrap());
            texts.push(plain(&self.command(Method::GET, &path, Value::Null).await.unwrap()));
        }
        texts
    }

    /// Everything that is to be read on the page.
    pub(crate) async fn words(&mut self) -> String {
        self.text("body").await
    }

    /// Waits until the page shows all of this.
    pub(crate) async fn sees(&mut self, expected: &[&str]) {
        let started = Instant::now();
        loop {
            let words = self.words().await;
            let missing: Vec<&&str> = expected.iter().filter(|part| !words.contains(**part)).collect();
            if missing.is_empty() {
                return;
            }
            if started.elapsed() > WAIT_MAX {
                self.give_up(&format!("{missing:?} is not on the page: {words}")).await;
            }
            tokio::time::sleep(GLANCE_EVERY).await;
        }
    }

    /// Moves the mouse there and presses it so many times, as fast as it goes.
    pub(crate) async fn press(&mut self, selector: &str, times: usize) {
        let element = self.find(selector).await.unwrap();
        let origin = json!({ ELEMENT: element });
        let (down, up) =
            (json!({ "type": "pointerDown", "button": 0 }), json!({ "type": "pointerUp", "button": 0 }));
        // The driver brings only an element that is clicked by its own means into view.
        self.run("arguments[0].scrollIntoView({ block: 'center' })", json!([origin])).await;
        let to = json!({ "type": "pointerMove", "origin": origin, "x": 0, "y": 0 });
        let presses = std::iter::repeat_n([down, up], times).flatten();
        let actions: Vec<Value> = std::iter::once(to).chain(presses).collect();
        let mouse = json!({ "type": "pointer", "id": "mouse", "actions": actions });
        self.command(Method::POST, "/actions", json!({ "actions": [mouse] })).await.unwrap();
    }

    /// Types into whatever has the focus.
    pub(crate) async fn strike(&mut self, keys: &str) {
        let stroke = |key: char| ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key }));
        let actions: Vec<Value> = keys.chars().flat_map(stroke).collect();
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": actions });
        self.command(Method::POST, "/actions", json!({ "actions": [keyboard] })).await.unwrap();
    }

    /// Runs a script by the driver's own means, which works where pages may run none.
    pub(crate) async fn run(&mut self, script: &str, arguments: Value) -> Value {
        self.command(Method::POST, "/execute/sync", json!({ "script": script, "args": arguments }))
            .await
            .unwrap()
    }

    pub(crate) async fn tabs(&mut self) -> Vec<String> {
        let tabs = self.command(Method::GET, "/window/handles", Value::Null).await.unwrap();
        tabs.as_array().unwrap().iter().map(|tab| tab.as_str().unwrap().to_owned()).collect()
    }

    /// Waits until so many have been opened beside these.
    pub(crate) async fn tabs_beside(&mut self, before: &[String], count: usize) -> Vec<String> {
        let started = Instant::now();
        loop {
            let mut tabs = self.tabs().await;
            tabs.retain(|tab| !before.contains(tab));
            if tabs.len() >= count {
                return tabs;
            }
            if started.elapsed() > WAIT_MAX {
                self.give_up(&format!("{} of {count} tabs have been opened", tabs.len())).await;
            }
            tokio::time::sleep(GLANCE_EVERY).await;
        }
    }

    pub(crate) async fn switch_to(&mut self, tab: &str) {
        self.command(Method::POST, "/window", json!({ "handle": tab })).await.unwrap();
    }

    /// Photographs the page and finds nothing wrong with it.
    pub(crate) async fn look(&mut self, step: &str) {
        self.look_at(step, None).await;
    }

    /// The same for a page that comes with a status the console complains about.
    pub(crate) async fn look_at_refusal(&mut self, step: &str, status: u16) {
        self.look_at(step, Some(status)).await;
    }

    async fn look_at(&mut self, step: &str, refusal: Option<u16>) {
        self.photograph(step).await;
        let (width, _) = self.screen.size();
        let metrics = self.devtools("Page.getLayoutMetrics", json!({})).await;
        let wide = (&metrics["cssLayoutViewport"]["clientWidth"], &metrics["cssContentSize"]["width"]);
        assert_eq!(wide, (&json!(width), &json!(width)), "{step} is wider than its {:?}", self.screen);
        let accepted = refusal.map(|status| format!("responded with a status of {status}"));
        let log = self.command(Method::POST, "/se/log", json!({ "type": "browser" })).await.unwrap();
        let bad: Vec<&Value> = log
            .as_array()
            .unwrap()
            .iter()
            .filter(|entry| entry["level"] == "SEVERE")
            .filter(|entry| {
                !accepted.as_ref().is_some_and(|words| entry["message"].as_str().unwrap().contains(words))
            })
            .collect();
        assert!(bad.is_empty(), "{step} left in the console: {bad:?}");
    }

    async fn photograph(&mut self, step: &str) {
        // The whole page, not only the part in view.
        let options = json!({ "format": "png", "captureBeyondViewport": true });
        let picture = self.devtools("Page.captureScreenshot", options).await;
        self.album.keep(step, &decoded(picture["data"].as_str().unwrap()));
    }

    async fn devtools(&mut self, command: &str, parameters: Value) -> Value {
        let body = json!({ "cmd": command, "params": parameters });
        self.command(Method::POST, "/goog/cdp/execute", body).await.unwrap()
    }

    /// Does something with an element, as soon as it is there and can be reached.
    async fn act(&mut self, selector: &str, method: Method, verb: &str, body: Value) -> Value {
        let started = Instant::now();
        loop {
            let outcome = match self.find(selector).await {
                Ok(id) => self.command(method.clone(), &format!("/element/{id}/{verb}"), body.clone()).await,
                Err(refusal) => Err(refusal),
            };
            match outcome {
                Ok(value) => return value,
                Err(refusal) if started.elapsed() > WAIT_MAX => {
                    self.give_up(&format!("{verb} of {selector}: {refusal}")).await;
                }
                Err(_) => tokio::time::sleep(GLANCE_EVERY).await,
            }
        }
    }

    async fn find(&mut self, selector: &str) -> Result<String, String> {
        let element = self.command(Method::POST, "/element", located(selector)).await?;
        Ok(element[ELEMENT].as_str().unwrap().to_owned())
    }

    async fn command(&mut self, method: Method, path: &str, body: Value) -> Result<Value, String> {
        let path = format!("/session/{}{path}", self.session);
        let body = (!body.is_null()).then_some(body);
        let answer = self.client.send(method, &path, &[], body).await;
        let answer =
            answer.unwrap_or_else(|error| panic!("the driver {} is gone: {error}", self.driver.child.id()));
        let value = answer.json()["value"].take();
        if answer.status.is_success() {
            Ok(value)
        } else {
            Err(format!("{}: {}", value["error"], value["message"]))
        }
    }

    async fn give_up(&mut self, what: &str) -> ! {
        self.photograph("failed").await;
        panic!("at {}: {what}", self.path().await);
    }
}

impl Screen {
    fn size(self) -> (u32, u32) {
        match self {
            Self::Phone => (390, 844),
            Self::Desktop => (1280, 900),
        }
    }
}

/// An element with these words in it, as XPath.
pub(crate) fn saying(tag: &str, words: &str) -> String {
    format!("//{tag}[contains(translate(normalize-space(.), '\u{a0}', ' '), '{words}')]")
}

/// Selectors are CSS, or XPath when they begin like a path.
fn located(selector: &str) -> Value {
    let using = if selector.starts_with(['/', '(']) { "xpath" } else { "css selector" };
    json!({ "using": using, "value": selector })
}

/// Text with all space made plain.
fn plain(text: &Value) -> String {
    text.as_str().unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `chromedriver`, which starts the browsers; they are in its process group and end with it.
struct Driver {
    child: Child,
    port: u16,
}

impl Driver {
    fn start() -> Self {
        let spawned = Command::new("chromedriver")
            .arg("--port=0")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut child = match spawned {
            Ok(child) => child,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                panic!("chromedriver is missing; `make tools` installs it and Chromium")
            }
            Err(error) => panic!("chromedriver does not start: {error}"),
        };
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut driver = Self { child, port: 0 };
        let mut said = Vec::new();
        while driver.port == 0 {
            let Some(Ok(line)) = lines.next() else {
                panic!("chromedriver ended before it listened: {said:?}")
            };
            let port =
                line.split_once("started successfully on port ").map(|(_, port)| port.trim_end_matches('.'));
            driver.port = port.map_or(0, |port| port.parse().unwrap());
            said.push(line);
        }
        // Whatever else it prints must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        driver
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Where the pictures of a journey go.
struct Album {
    dir: PathBuf,
    /// Removed at the end, unless somebody asked for the pictures.
    _passing: Option<TempDir>,
    journey: String,
    pages: usize,
}

impl Album {
    fn open(journey: &str) -> Self {
        let (dir, passing) = match std::env::var_os("MOBIMIR_SCREENSHOTS") {
            Some(dir) => (PathBuf::from(dir), None),
            None => {
                let dir = TempDir::new().unwrap();
                (dir.path().to_owned(), Some(dir))
            }
        };
        std::fs::create_dir_all(&dir).unwrap();
        Self { dir, _passing: passing, journey: journey.to_owned(), pages: 0 }
    }

    fn keep(&mut self, step: &str, picture: &[u8]) {
        self.pages += 1;
        let name = format!("{}-{:02}-{step}.png", self.journey, self.pages);
        std::fs::write(self.dir.join(name), picture).unwrap();
    }
}

/// Base64, which WebDriver sends pictures in.
fn decoded(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |byte: u8| DIGITS.iter().position(|digit| *digit == byte);
    let digits: Vec<usize> = text.bytes().map_while(digit).collect();
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    for group in digits.chunks(4) {
        let bits = group.iter().enumerate().fold(0, |bits, (place, digit)| bits | digit << (18 - 6 * place));
        bytes.extend_from_slice(&(bits as u32).to_be_bytes()[1..group.len()]);
    }
    bytes
}
