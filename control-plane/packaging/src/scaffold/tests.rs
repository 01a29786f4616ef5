//! New primitives in every language and of every type.

use super::*;

const LANGUAGES: [ScaffoldLanguage; 5] = [
    ScaffoldLanguage::Python,
    ScaffoldLanguage::Node,
    ScaffoldLanguage::Typescript,
    ScaffoldLanguage::Java,
    ScaffoldLanguage::JavaMaven,
];

fn tool(id: &str, language: ScaffoldLanguage) -> NewPrimitive<'_> {
    NewPrimitive { id, server: None, kind: ScaffoldType::Tool, language: Some(language) }
}

#[test]
fn what_is_made_has_no_fault_in_any_language() {
    for language in LANGUAGES {
        let root = tempfile::tempdir().unwrap();
        new(root.path(), &tool("greet_all", language)).unwrap();
        let report = asp_registry::check(&asp_registry::read_dir(root.path()).unwrap());
        assert!(report.faults.is_empty() && report.warnings.is_empty(), "{report:?}");
        assert_eq!(report.catalog.unwrap().servers[0].server.name, "greet-all");
    }
}

#[test]
fn a_first_tool_is_twelve_lines_of_code_and_fifteen_of_yaml_without_a_schema() {
    for language in LANGUAGES {
        let root = tempfile::tempdir().unwrap();
        let files = new(root.path(), &tool("greet", language)).unwrap().made;
        let text = |index: usize| fs::read_to_string(&files[index]).unwrap();
        assert!(text(0).lines().count() + text(1).lines().count() <= 15, "{language:?}");
        assert!(!text(1).contains("chema"), "{}", text(1));
        let says_what = |line: &&str| !line.is_empty() && !line.starts_with(['/', '"']);
        assert!(text(3).lines().filter(says_what).count() <= 12, "{}", text(3));
    }
}

#[test]
fn every_type_joins_the_package_of_its_server_and_has_no_fault() {
    use ScaffoldType::{Delegate, Elicitation, Prompt, Resource, Task, Tool};
    for language in LANGUAGES {
        let root = tempfile::tempdir().unwrap();
        new(root.path(), &tool("greet", language)).unwrap();
        let kinds = [
            ("bye_bye", Tool),
            ("sweep", Task),
            ("page", Resource),
            ("letter", Prompt),
            ("which", Elicitation),
            ("tone", Delegate),
        ];
        for (id, kind) in kinds {
            let language = kind.has_code().then_some(language);
            let made = new(root.path(), &NewPrimitive { id, server: Some("greet"), kind, language }).unwrap();
            assert_eq!(made.changed.is_some(), kind.has_code(), "{id}");
        }
        let report = asp_registry::check(&asp_registry::read_dir(root.path()).unwrap());
        assert!(report.faults.is_empty(), "{:?}", report.faults);
        let unlisted: Vec<_> = report.warnings.iter().map(|warning| (warning.code, &*warning.file)).collect();
        let code = asp_registry::FaultCode::UnlistedPrimitive;
        assert_eq!(
            unlisted,
            [(code, "greet/tone.yaml"), (code, "greet/which.yaml")],
            "nothing needs them yet"
        );
        let catalog = report.catalog.unwrap();
        let units = crate::units(&catalog.servers, Some(root.path()));
        let found: Vec<_> = units.iter().map(|unit| (&*unit.id, unit.primitives.len())).collect();
        assert_eq!(found, [("greet", 5)], "{language:?}");
    }
}

#[test]
fn typescript_is_a_project_of_its_own_tools() {
    let root = tempfile::tempdir().unwrap();
    new(root.path(), &tool("greet", ScaffoldLanguage::Typescript)).unwrap();
    let code = root.path().join("greet/plugins/greet");
    let json = |name: &str| -> serde_json::Value {
        serde_json::from_str(&fs::read_to_string(code.join(name)).unwrap()).unwrap()
    };
    assert_eq!(
        (&json("package.json")["type"], &json("package.json")["version"]),
        (&"module".into(), &"0.1.0".into())
    );
    assert_eq!(json("tsconfig.json")["compilerOptions"]["erasableSyntaxOnly"], true);
    let test = fs::read_to_string(code.join("tests/main.test.ts")).unwrap();
    assert!(test.contains("from '../main.ts'"), "{test}");
    let more = NewPrimitive { server: Some("greet"), ..tool("bye", ScaffoldLanguage::Typescript) };
    let made = new(root.path(), &more).unwrap().made;
    assert!(made.contains(&code.join("bye.ts")) && !made.contains(&code.join("package.json")), "{made:?}");
}

#[test]
fn java_with_maven_is_a_project_with_a_unit_test() {
    let root = tempfile::tempdir().unwrap();
    new(root.path(), &tool("greet", ScaffoldLanguage::JavaMaven)).unwrap();
    let code = root.path().join("greet/plugins/greet");
    let read = |path: &str| fs::read_to_string(code.join(path)).unwrap();
    let pom = read("pom.xml");
    assert!(pom.contains("<artifactId>greet</artifactId>\n  <version>0.1.0</version>"), "{pom}");
    assert!(pom.contains(&format!("<version>{LIBRARY}</version>")) && !pom.contains("{{"), "{pom}");
    assert!(read("src/main/java/Main.java").contains("class Main implements"));
    assert!(read("src/test/java/MainTest.java").contains("class MainTest {"));
    let spec = fs::read_to_string(root.path().join("greet/greet.yaml")).unwrap();
    assert!(spec.contains("language: java, entrypoint: Main}"), "{spec}");
    let more = NewPrimitive { server: Some("greet"), ..tool("bye", ScaffoldLanguage::JavaMaven) };
    let made = new(root.path(), &more).unwrap().made;
    assert!(
        made.contains(&code.join("src/test/java/ByeTest.java")) && !made.contains(&code.join("pom.xml")),
        "{made:?}"
    );
    assert!(read("src/test/java/ByeTest.java").contains("new Bye().run(new Bye.Input("));
}

#[test]
fn a_package_without_maven_gets_no_test_that_would_be_compiled_into_it() {
    let root = tempfile::tempdir().unwrap();
    new(root.path(), &tool("greet", ScaffoldLanguage::Java)).unwrap();
    let more = NewPrimitive { server: Some("greet"), ..tool("bye", ScaffoldLanguage::JavaMaven) };
    let made = new(root.path(), &more).unwrap().made;
    let code = root.path().join("greet/plugins/greet");
    let of_code: Vec<_> = made.iter().filter(|path| path.starts_with(&code)).collect();
    assert_eq!(of_code, [&code.join("Bye.java")]);
}

#[test]
fn another_language_has_a_package_of_its_own() {
    let root = tempfile::tempdir().unwrap();
    new(root.path(), &tool("greet", ScaffoldLanguage::Python)).unwrap();
    let other = NewPrimitive { server: Some("greet"), ..tool("bye", ScaffoldLanguage::Node) };
    new(root.path(), &other).unwrap();
    assert!(root.path().join("greet/plugins/bye/main.mjs").is_file());
}

#[test]
fn nothing_that_is_there_is_touched() {
    let root = tempfile::tempdir().unwrap();
    new(root.path(), &tool("hello", ScaffoldLanguage::Python)).unwrap();
    let spec = root.path().join("hello/hello.yaml");
    fs::write(&spec, "mine").unwrap();
    for server in [None, Some("hello")] {
        let again = NewPrimitive { server, ..tool("hello", ScaffoldLanguage::Node) };
        let listing = fs::read_to_string(root.path().join("hello/server.yaml")).unwrap();
        let error = new(root.path(), &again).unwrap_err();
        assert!(error.to_string().ends_with("exists already"), "{error}");
        assert_eq!(fs::read_to_string(&spec).unwrap(), "mine");
        assert_eq!(fs::read_to_string(root.path().join("hello/server.yaml")).unwrap(), listing);
    }
}

#[test]
fn a_type_without_code_needs_a_server_and_the_others_a_language() {
    let root = tempfile::tempdir().unwrap();
    let which = NewPrimitive { id: "which", server: None, kind: ScaffoldType::Elicitation, language: None };
    assert!(new(root.path(), &which).unwrap_err().to_string().contains("--server NAME"));
    let tool = NewPrimitive { kind: ScaffoldType::Tool, ..which };
    assert!(new(root.path(), &tool).unwrap_err().to_string().contains("--language"));
}

#[test]
fn an_id_that_could_leave_its_folder_is_refused() {
    let root = tempfile::tempdir().unwrap();
    for id in ["", "..", "a/b", "A", "1a", "-a", &"a".repeat(64)] {
        let error = new(root.path(), &tool(id, ScaffoldLanguage::Java)).unwrap_err();
        assert!(error.to_string().contains("is not a valid id"), "{id}: {error}");
        let other = NewPrimitive { server: Some(id), ..tool("greet", ScaffoldLanguage::Java) };
        let error = new(root.path(), &other).unwrap_err();
        assert!(error.to_string().contains("is not a valid server name"), "{id}: {error}");
    }
}
