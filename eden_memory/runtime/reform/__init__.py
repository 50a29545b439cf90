"""A reform at work: its windows fed, its calls counted, its stages run."""
