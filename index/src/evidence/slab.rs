//! Numbered storage in chunks: growing never moves what is there, so no batch pays for copying megabytes. Freed numbers
//! are used again. It never shrinks; what it may hold is bounded by the fleet's block budget.

const CHUNK: usize = 4096;

/// Values by number.
#[derive(Debug)]
pub(super) struct Slab<T> {
    chunks: Vec<Vec<T>>,
    free: Vec<u32>,
    len: u32,
}

impl<T> Slab<T> {
    pub(super) fn new() -> Self {
        Self { chunks: Vec::new(), free: Vec::new(), len: 0 }
    }

    /// Stores `value` and returns its number.
    pub(super) fn insert(&mut self, value: T) -> u32 {
        if let Some(number) = self.free.pop() {
            *self.get_mut(number) = value;
            return number;
        }
        let number = self.len;
        if (number as usize).is_multiple_of(CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        self.chunks[number as usize / CHUNK].push(value);
        self.len += 1;
        number
    }

    /// Frees a number. The value stays until the number is used again.
    pub(super) fn remove(&mut self, number: u32) {
        self.free.push(number);
    }

    pub(super) fn get(&self, number: u32) -> &T {
        &self.chunks[number as usize / CHUNK][number as usize % CHUNK]
    }

    pub(super) fn get_mut(&mut self, number: u32) -> &mut T {
        &mut self.chunks[number as usize / CHUNK][number as usize % CHUNK]
    }

    /// Numbers in use.
    pub(super) fn live(&self) -> usize {
        self.len as usize - self.free.len()
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> usize {
        self.chunks.len() * CHUNK * size_of::<T>() + self.free.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_numbers_are_used_again_and_values_stay_put() {
        let mut slab = Slab::new();
        let numbers: Vec<u32> = (0..10_000).map(|i| slab.insert(i)).collect();
        slab.remove(numbers[5000]);
        assert_eq!(slab.live(), 9_999);
        assert_eq!(slab.insert(77), numbers[5000]);
        assert_eq!((*slab.get(5000), *slab.get(9999), slab.live()), (77, 9999, 10_000));
    }
}
