//! The three languages start at level 3.

use std::path::{Path, PathBuf};
use std::process::Command;

use asp_launcher::Level;

use crate::harness::{Cell, stderr, stdout};

#[test]
fn python_starts_and_finds_its_library() {
    let scratch = crate::harness::scratch();
    let script = scratch.path().join("hello.py");
    std::fs::write(&script, "import asyncio, json, ssl, tempfile, os\nprint(json.dumps(os.getcwd()))\n")
        .unwrap();
    let mut cell = Cell::python(Level::L3, &script, &[]);
    let output = cell.output();
    assert_eq!(stdout(&output), format!("{:?}\n", cell.sandbox.work_dir), "{}", stderr(&output));
    assert!(output.status.success());
}

/// Features that libraries use implicitly: threads, processes, shared memory, local sockets, memory maps.
#[test]
fn python_finds_what_its_libraries_need() {
    let scratch = crate::harness::scratch();
    let script = scratch.path().join("libraries.py");
    std::fs::write(
        &script,
        "import asyncio, multiprocessing, subprocess, tempfile, mmap, os, pwd, socket, ssl, threading\n\
         from multiprocessing import shared_memory\n\
         def double(x): return 2 * x\n\
         with multiprocessing.get_context('fork').Pool(2) as pool: assert pool.map(double, [1, 2]) == [2, 4]\n\
         memory = shared_memory.SharedMemory(create=True, size=64); memory.close(); memory.unlink()\n\
         assert subprocess.run(['ls', '-d', '.'], capture_output=True).stdout == b'.\\n'\n\
         thread = threading.Thread(target=double, args=(1,)); thread.start(); thread.join()\n\
         with tempfile.TemporaryFile() as file:\n    file.write(b'x'); file.flush(); mmap.mmap(file.fileno(), 1).close()\n\
         one, two = socket.socketpair(); one.sendall(b'x'); assert two.recv(1) == b'x'\n\
         os.mkfifo('fifo'); os.rename('fifo', 'pipe'); os.symlink('pipe', 'link')\n\
         assert pwd.getpwuid(os.getuid()).pw_name == 'worker'\n\
         assert ssl.create_default_context().get_ca_certs() is not None\n\
         async def main():\n    \
             process = await asyncio.create_subprocess_exec('true'); assert await process.wait() == 0\n\
         asyncio.run(main())\n\
         print('all')\n",
    )
    .unwrap();
    let output = Cell::python(Level::L3, &script, &[]).output();
    assert_eq!(stdout(&output), "all\n", "{}", stderr(&output));
}

#[test]
fn node_starts_and_finds_its_library() {
    let node = program("ASP_NODE_BIN", "node");
    let script = "const fs=require('fs');fs.writeFileSync('a','b');require('crypto').randomBytes(4);\
                  console.log(process.cwd(), fs.readFileSync('a','utf8'))";
    let mut cell = Cell::new(Level::L3, &[node.to_str().unwrap(), "-e", script], &[&node]);
    cell.sandbox.limits.memory_bytes = 512 << 20;
    let output = cell.output();
    assert_eq!(stdout(&output), format!("{} b\n", cell.sandbox.work_dir.display()), "{}", stderr(&output));
    assert!(output.status.success());
}

#[test]
fn java_starts_and_finds_its_library() {
    let java = program("ASP_JAVA_BIN", "java");
    let scratch = crate::harness::scratch();
    let source = scratch.path().join("Hello.java");
    std::fs::write(
        &source,
        "public class Hello { public static void main(String[] a) throws Exception {\n\
         java.security.SecureRandom.getInstanceStrong();\n\
         javax.net.ssl.SSLContext.getDefault();\n\
         var file = java.nio.file.Path.of(\"a\"); java.nio.file.Files.writeString(file, \"b\");\n\
         System.out.println(System.getProperty(\"user.dir\") + java.nio.file.Files.readString(file)); } }\n",
    )
    .unwrap();
    let home = java.parent().and_then(Path::parent).unwrap();
    let read_only: Vec<&Path> = if home.starts_with("/usr") { vec![&source] } else { vec![home, &source] };
    let argv = [java.to_str().unwrap(), "-Xmx64m", "-XX:-UsePerfData", source.to_str().unwrap()];
    let mut cell = Cell::new(Level::L3, &argv, &read_only);
    cell.sandbox.limits.memory_bytes = 512 << 20;
    let output = cell.output();
    assert_eq!(stdout(&output), format!("{}b\n", cell.sandbox.work_dir.display()), "{}", stderr(&output));
    assert!(output.status.success());
}

#[test]
fn node_finds_what_its_libraries_need() {
    let node = program("ASP_NODE_BIN", "node");
    let script = "const os=require('os'),cp=require('child_process'),net=require('net');\
                  const {Worker}=require('worker_threads');\
                  if(os.availableParallelism()<1||os.totalmem()<1||os.userInfo().username!=='worker')throw 'os';\
                  if(cp.execFileSync('ls',['-d','.']).toString()!=='.\\n')throw 'child';\
                  new WebAssembly.Memory({initial:1});\
                  fetch('data:,x').then(r=>r.text()).then(t=>{if(t!=='x')throw 'fetch';\
                  new Worker('1',{eval:true}).on('exit',()=>{\
                  const s=net.createServer(c=>{c.end('y')}).listen('local.sock',()=>{\
                  net.connect('local.sock').on('data',d=>{console.log('all'+os.cpus().length);s.close()})})})})";
    let mut cell = Cell::new(Level::L3, &[node.to_str().unwrap(), "-e", script], &[&node]);
    cell.sandbox.limits.memory_bytes = 512 << 20;
    let output = cell.output();
    // Without /proc/stat Node does not know the names of processors.
    assert_eq!(stdout(&output), "all0\n", "{}", stderr(&output));
}

#[test]
fn java_finds_what_its_libraries_need() {
    let java = program("ASP_JAVA_BIN", "java");
    let scratch = crate::harness::scratch();
    let source = scratch.path().join("Libraries.java");
    std::fs::write(
        &source,
        "import java.net.*; import java.nio.channels.*; import java.nio.file.*;\n\
         public class Libraries { public static void main(String[] a) throws Exception {\n\
         var process = new ProcessBuilder(\"ls\", \"-d\", \".\").start();\n\
         if (!new String(process.getInputStream().readAllBytes()).equals(\".\\n\")) throw new Exception(\"child\");\n\
         var address = UnixDomainSocketAddress.of(\"local.sock\");\n\
         var server = ServerSocketChannel.open(StandardProtocolFamily.UNIX).bind(address);\n\
         var thread = new Thread(() -> { try (var c = SocketChannel.open(address)) { } catch (Exception e) { } });\n\
         thread.start(); server.accept().close(); thread.join();\n\
         Files.delete(Files.createTempFile(\"a\", \"b\"));\n\
         if (Runtime.getRuntime().availableProcessors() < 1) throw new Exception(\"processors\");\n\
         System.out.println(\"all\"); } }\n",
    )
    .unwrap();
    let home = java.parent().and_then(Path::parent).unwrap();
    let read_only: Vec<&Path> = if home.starts_with("/usr") { vec![&source] } else { vec![home, &source] };
    // Java reads neither TMPDIR nor the bounds of a control group it cannot see.
    let argv = [
        java.to_str().unwrap(),
        "-Xmx64m",
        "-XX:-UsePerfData",
        "-Djava.io.tmpdir=.",
        source.to_str().unwrap(),
    ];
    let mut cell = Cell::new(Level::L3, &argv, &read_only);
    cell.sandbox.limits.memory_bytes = 512 << 20;
    let output = cell.output();
    assert_eq!(stdout(&output), "all\n", "{}", stderr(&output));
}

fn program(variable: &str, name: &str) -> PathBuf {
    let found = std::env::var(variable).unwrap_or_else(|_| {
        let which = Command::new("/bin/sh").args(["-c", &format!("command -v {name}")]).output().unwrap();
        String::from_utf8(which.stdout).unwrap().trim().to_owned()
    });
    std::fs::canonicalize(&found).unwrap_or_else(|_| panic!("{name} is not installed (or set {variable})"))
}
