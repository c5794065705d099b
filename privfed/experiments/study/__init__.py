"""What a study is: its file, its axes, its data sets and its cells."""
