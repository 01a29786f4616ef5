//! The runtime as a whole: the real binary, the real launcher, real worker processes
//! (`examples/ppp_worker.rs` stands for an interpreter).

mod it {
    mod admission;
    mod calls;
    mod death;
    mod faults;
    mod handles;
    mod harness;
    mod languages;
    mod limits;
    mod watching;
}
