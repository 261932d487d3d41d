"""The questions that prompts and rules may be tuned on: over other projects than those kept apart."""

from __future__ import annotations

from bench.local.plain_cases import PROJECT
from bench.local.projects import copy_package, write_project
from bench.local.questions import Question

TIDEWATCH = write_project("tidewatch", PROJECT)
PLUGGY = copy_package("pluggy")
LANTERN = write_project(
    "lantern",
    {
        "README.md": "# Lantern\n\nLantern dims the street lamps of a town when no one is on the street.\n",
        "Cargo.toml": (
            '[package]\nname = "lantern"\nversion = "0.4.2"\nedition = "2021"\n\n[dependencies]\nserde = "1.0"\n'
            'tokio = { version = "1.36", features = ["full"] }\n'
        ),
        "src/main.rs": (
            "mod lamp;\nmod motion;\n\nconst POLL_SECONDS: u64 = 15;\n\n#[tokio::main]\nasync fn main() {\n"
            "    // TODO: read the street from the configuration\n    lamp::dim_all(30).await;\n}\n"
        ),
        "src/lamp.rs": (
            "pub const BRIGHTEST: u8 = 100;\n\npub struct Lamp {\n    pub id: u32,\n    pub percent: u8,\n}\n\n"
            "impl Lamp {\n    pub fn set_percent(&mut self, percent: u8) {\n"
            "        self.percent = percent.min(BRIGHTEST);\n    }\n}\n\n"
            "pub async fn dim_all(percent: u8) {\n    // TODO: in the order of the streets\n    let _ = percent;\n}\n"
        ),
        "src/motion.rs": (
            "/// Whether someone moved in the last five minutes.\npub fn is_empty(street: &str) -> bool {\n"
            "    street.is_empty()\n}\n"
        ),
        "tests/lamp_test.rs": "#[test]\nfn a_lamp_is_never_too_bright() {\n    assert!(true);\n}\n",
        "config/town.yaml": "town: Skagen\nstreets: 48\nquiet_from: 23\nquiet_until: 5\n",
    },
)

TUNING = (
    Question(TIDEWATCH, "What does this project do?", "says", "water level|harbour|chart|tide"),
    Question(TIDEWATCH, "Where is draw_chart defined?", "file", r"chart\.py$"),
    Question(TIDEWATCH, "Where is upload_chart defined?", "absent"),
    Question(TIDEWATCH, "What is TIMEOUT set to?", "says", r"\b20\b"),
    Question(TIDEWATCH, "How many Python files are there?", "number", lambda tree: tree.count_files("*.py")),
    Question(TIDEWATCH, "How many functions are in the code?", "number", lambda tree: tree.count_matches(r"^def ")),
    Question(TIDEWATCH, "Which database is used?", "absent", wrong="postgres|sqlite|mysql"),
    Question(TIDEWATCH, "When is a reading dropped?", "says", "hour"),
    Question(TIDEWATCH, "What does src/tidewatch/alarm.py do?", "absent"),
    Question(TIDEWATCH, "How many lines has src/tidewatch/collect.py?", "number",
             lambda tree: tree.count_lines("src/tidewatch/collect.py")),
    Question(TIDEWATCH, "Which stations are there?", "says", "Husum.*Cuxhaven.*Emden"),
    Question(TIDEWATCH, "What is the capital of Spain?", "known", "Madrid"),
    Question(LANTERN, "What is this?", "says", "lamp|street|dim"),
    Question(LANTERN, "Which file has the struct Lamp?", "file", r"lamp\.rs$"),
    Question(LANTERN, "How many TODO comments are there?", "number", lambda tree: tree.count_matches("TODO")),
    Question(LANTERN, "How often does it poll?", "says", r"\b15\b"),
    Question(LANTERN, "How many Rust files are in the project?", "number", lambda tree: tree.count_files("*.rs")),
    Question(LANTERN, "Which version of tokio is needed?", "says", r"1\.36"),
    Question(LANTERN, "From when on is it quiet?", "says", r"\b(23|11)\b"),
    Question(LANTERN, "Is there a function called dim_one?", "absent", wrong="^yes"),
    Question(LANTERN, "What is the name of the town?", "says", "Skagen"),
    Question(LANTERN, "Where is the Bluetooth driver?", "absent"),
    Question(LANTERN, "Which files use tokio?", "says", r"(?=.*main\.rs)(?=.*Cargo\.toml)"),
    Question(LANTERN, "Hi there!", "known", "hello|hi|help"),
    Question(PLUGGY, "Where is the class PluginManager defined?", "file", r"_manager\.py$"),
    Question(PLUGGY, "How many Python files are there?", "number", lambda tree: tree.count_files("*.py")),
    Question(PLUGGY, "How many lines has pluggy/_result.py?", "number",
             lambda tree: tree.count_lines("pluggy/_result.py")),
    Question(PLUGGY, "Where is the class PluginServer?", "absent"),
    Question(PLUGGY, "Which files mention HookspecOpts?", "says", r"_(hooks|manager|config|caller|decorators)\.py"),
    Question(PLUGGY, "How many classes does pluggy/_result.py have?", "number",
             lambda tree: tree.count_matches(r"^class ", "_result.py")),
    Question(PLUGGY, "How many files mention historic?", "number", lambda tree: tree.count_files_with("historic")),
    Question(PLUGGY, "What does the method is_blocked do?", "says", "block|name"),
    Question(PLUGGY, "Which warning class is defined in pluggy/_warnings.py?", "says", "PluggyWarning|TeardownRaised"),
    Question(PLUGGY, "Which HTTP library is used here?", "absent", wrong="requests|httpx|aiohttp|urllib"),
)  # fmt: skip
