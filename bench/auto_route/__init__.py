"""What `auto` makes of easy and hard questions: training of its weights, and how often it is right."""
