//! Where random bytes come from. Passed in where a simulation must be able to repeat them.

/// A source of random bytes that nobody can guess.
pub trait Entropy: Send + Sync {
    fn fill(&self, bytes: &mut [u8]);
}

/// The operating system's.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    #[expect(
        clippy::expect_used,
        reason = "without the system's randomness no secret can be made, so there is nothing to go on with"
    )]
    fn fill(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the operating system gives random bytes");
    }
}

impl dyn Entropy + '_ {
    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.fill(&mut bytes);
        bytes
    }
}
