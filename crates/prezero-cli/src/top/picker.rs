//! Rows that the user sorts and selects from: which order, which column, which row.

use ratatui::crossterm::event::KeyCode;

/// Rows, known by a key of each.
#[derive(Debug)]
pub struct Picker<K> {
    /// In the order shown.
    pub order: Vec<K>,
    /// The one that is shown in detail.
    pub selected: Option<K>,
    /// The column that sorts.
    pub sort: usize,
    reverse: bool,
    columns: usize,
}

impl<K: Clone + PartialEq> Picker<K> {
    /// No rows yet, of `columns` columns.
    pub fn new(columns: usize, sort: usize) -> Picker<K> {
        Picker { order: vec![], selected: None, sort, reverse: false, columns }
    }

    /// Other rows, in the order of the column; the selected row stays so while it is there.
    pub fn arrange(&mut self, mut sorted: Vec<K>) {
        if self.reverse {
            sorted.reverse();
        }
        self.order = sorted;
        let there = |key: &K| self.order.contains(key);
        self.selected = self.selected.take().filter(there).or(self.order.first().cloned());
    }

    /// Where the selected row stands.
    pub fn at(&self) -> Option<usize> {
        self.order.iter().position(|key| Some(key) == self.selected.as_ref())
    }

    /// A key.
    pub fn press(&mut self, code: KeyCode) {
        let at = self.at().unwrap_or(0);
        match code {
            KeyCode::Up | KeyCode::Char('k') => self.select(at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.select(at + 1),
            KeyCode::Home => self.select(0),
            KeyCode::End => self.select(usize::MAX),
            KeyCode::Left | KeyCode::Char('<') => {
                self.sort = (self.sort + self.columns - 1) % self.columns;
            }
            KeyCode::Right | KeyCode::Char('>') => self.sort = (self.sort + 1) % self.columns,
            KeyCode::Char('r') => self.reverse = !self.reverse,
            _ => {}
        }
    }

    fn select(&mut self, at: usize) {
        self.selected = self.order.get(at).or(self.order.last()).cloned();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_choose_column_direction_and_row() {
        let mut picker = Picker::new(3, 2);
        picker.press(KeyCode::Down);
        assert_eq!(picker.selected, None, "no row is there");
        picker.arrange(vec![10, 20, 30]);
        assert_eq!((picker.selected, picker.at()), (Some(10), Some(0)));
        for (key, selected) in [(KeyCode::Down, 20), (KeyCode::End, 30), (KeyCode::Down, 30)] {
            picker.press(key);
            assert_eq!(picker.selected, Some(selected));
        }
        picker.press(KeyCode::Char('r'));
        picker.arrange(vec![10, 20, 30]);
        assert_eq!(
            (picker.order[0], picker.at()),
            (30, Some(0)),
            "the selected row stays selected"
        );
        picker.arrange(vec![10, 20]);
        assert_eq!(picker.selected, Some(20), "a row that is gone is not");
        picker.press(KeyCode::Right);
        assert_eq!(picker.sort, 0);
        picker.press(KeyCode::Left);
        assert_eq!(picker.sort, 2);
    }
}
